package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"pktdirector/control"
	"pktdirector/control/migrate"
)

// maxImport is the largest file that is read, in bytes.
const maxImport = 16 << 20

// newImportCommand takes over what other directors were told.
func newImportCommand() *cobra.Command {
	var file, format, id string
	var links []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "import [--link NAME]... [-o FILE] FILE|-",
		Short: "Make a configuration file of ipvsadm's rules or of keepalived.conf",
		Long: `Import reads a file that "ipvsadm -S" wrote, or keepalived.conf with the files that it
includes, and writes a configuration of the virtual servers in it. What could not be
taken over is told on standard error, one line each, with file, line, what stands there
and what became of it. What the file does not say and the director must know (which
interfaces it works on, which packets have a firewall mark) is marked FILL IN in the
configuration. docs/import.md has the whole story.

Exit code 0: all was taken over. 1: the file could not be read, or the configuration
not written. 2: the command line makes no sense. 3: written, with remarks.`,
		Example: `  ipvsadm -Sn | pktdirector import --link eth0 -o director.yaml -
  pktdirector import --link eth0 --link eth1 /etc/keepalived/keepalived.conf > director.yaml
  pktdirector import --json keepalived.conf | jq -r '.remarks[].why'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError(fmt.Errorf("import: %d files are named: one is right, - is standard input", len(args)))
			}
			return nil
		},
		RunE: failing(func(cmd *cobra.Command, args []string) error {
			names, cancel := systemNames(cmd.Context())
			defer cancel()
			o := migrate.Options{Format: migrate.Format(format), Links: links, ConfigID: id, Names: names, Include: includedFiles}
			if format != "" && !slices.Contains([]migrate.Format{migrate.Ipvsadm, migrate.Keepalived}, o.Format) {
				return usageError(fmt.Errorf("import: --format %q is not known: ipvsadm or keepalived", format))
			}
			if err := checkLinks(links); err != nil {
				return usageError(err)
			}
			f, err := importedFile(cmd.InOrStdin(), args[0])
			if err != nil {
				return fmt.Errorf("import: %w", err)
			}
			r, err := migrate.Import(f, o)
			if err != nil {
				return err
			}
			if err := deliver(cmd, file, r.Config, asJSON, r); err != nil {
				return err
			}
			if !asJSON {
				for _, remark := range r.Remarks {
					fmt.Fprintln(cmd.ErrOrStderr(), remark)
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "%d services with %d servers were taken over from %s, with %d remarks\n", r.Services, r.Servers, f.Name, len(r.Remarks))
			}
			if len(r.Remarks) > 0 {
				return exitError{code: exitRemarks}
			}
			return nil
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&format, "format", "", "ipvsadm or keepalived (default: found out by the file)")
	flags.StringArrayVar(&links, "link", nil, "an interface that the director shall work on; once for each")
	flags.StringVar(&id, "config-id", "", "of keepalived.conf: what keepalived is given as -i, or the host's name, for lines that begin with @")
	addOutputFlags(cmd, &file, &asJSON)
	return cmd
}

// checkLinks refuses names that no interface can have, and those given twice.
func checkLinks(links []string) error {
	for i, l := range links {
		if _, err := control.Parse("--link", control.Minimal(l)); err != nil {
			return fmt.Errorf("import: --link %q cannot be an interface's name", l)
		}
		if slices.Contains(links[:i], l) {
			return fmt.Errorf("import: --link %s is given twice: once is right", l)
		}
	}
	return nil
}

// importedFile reads a file, or standard input for -.
func importedFile(stdin io.Reader, name string) (migrate.File, error) {
	if name == "-" {
		text, err := io.ReadAll(io.LimitReader(stdin, maxImport+1))
		if err != nil {
			return migrate.File{}, fmt.Errorf("standard input: %w", err)
		}
		return migrate.File{Name: "-", Text: string(text)}, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return migrate.File{}, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxImport+1)) // more than Import takes, which says so
	return migrate.File{Name: name, Text: string(text)}, err
}

// includedFiles finds what an include line of a file names, from that file's folder
// on, as keepalived does.
func includedFiles(from, pattern string) ([]migrate.File, error) {
	if strings.ContainsAny(pattern, "{}") {
		return nil, errors.New("braces in names of files are not known: write an include line for each")
	}
	if !filepath.IsAbs(pattern) {
		if from == "-" {
			return nil, errors.New("from standard input, only absolute paths can be included: name the file in place of -")
		}
		pattern = filepath.Join(filepath.Dir(from), pattern)
	}
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return nil, fmt.Errorf("%q is no pattern of names: %w", pattern, err)
	}
	var files []migrate.File
	for _, p := range paths {
		if info, err := os.Stat(p); err == nil && info.IsDir() {
			continue
		}
		f, err := importedFile(nil, p)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}
