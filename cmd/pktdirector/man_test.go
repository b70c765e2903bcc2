package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// each calls do with every command that help lists.
func each(cmd *cobra.Command, do func(*cobra.Command)) {
	do(cmd)
	for _, c := range documented(cmd) {
		each(c, do)
	}
}

func TestEveryCommandHasAnExample(t *testing.T) {
	n := 0
	each(newRootCommand(), func(c *cobra.Command) {
		n++
		if !strings.Contains(c.Example, c.CommandPath()) || !strings.HasPrefix(c.Example, "  ") {
			t.Errorf("%s: its example does not show it, indented by two: %q", c.CommandPath(), c.Example)
		}
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: %q is no line without full stop", c.CommandPath(), c.Short)
		}
	})
	if n < 20 {
		t.Errorf("only %d commands", n)
	}
}

// Each example's command line is one that the program takes, as far as commands and
// flags go.
func TestExamplesAreRight(t *testing.T) {
	each(newRootCommand(), func(c *cobra.Command) {
		for line := range strings.Lines(c.Example) {
			line, _, _ = strings.Cut(strings.TrimSpace(line), "  ") // what it does follows
			words := strings.Fields(line)
			if len(words) < 2 || words[0] != "pktdirector" {
				continue
			}
			found, rest, err := newRootCommand().Find(words[1:])
			if err != nil || found.Name() == "pktdirector" && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
				t.Errorf("%s: %q: %v", c.CommandPath(), line, err)
				continue
			}
			for i, w := range rest {
				name, isFlag := strings.CutPrefix(w, "--")
				if w == "--" || found.DisableFlagParsing {
					break
				}
				if name, _, _ = strings.Cut(name, "="); isFlag && found.Flag(name) == nil {
					t.Errorf("%s: %q: word %d, %s has no flag %s", c.CommandPath(), line, i, found.CommandPath(), w)
				}
			}
		}
	})
}

func TestManPages(t *testing.T) {
	pages := manPages(newRootCommand())
	if diff := cmp.Diff(pages, manPages(newRootCommand())); diff != "" {
		t.Errorf("made again the pages differ:\n%s", diff)
	}
	dir := t.TempDir()
	each(newRootCommand(), func(c *cobra.Command) {
		page, there := pages[manName(c)+".1"]
		if !there {
			t.Errorf("%s has no page", c.CommandPath())
		}
		for _, section := range []string{".TH " + strings.ToUpper(manName(c)) + " 1 ", ".SH NAME\n", ".SH SYNOPSIS\n", ".SH DESCRIPTION\n", ".SH OPTIONS\n", ".SH EXAMPLES\n"} {
			if !bytes.Contains(page, []byte(section)) {
				t.Errorf("%s: no %q", c.CommandPath(), section)
			}
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if has := bytes.Contains(page, []byte(roff("--"+f.Name))); has == f.Hidden {
				t.Errorf("%s: flag %s hidden %v, on the page %v", c.CommandPath(), f.Name, f.Hidden, has)
			}
		})
		if err := os.WriteFile(filepath.Join(dir, manName(c)+".1"), page, 0o644); err != nil {
			t.Fatal(err)
		}
	})
	files, _ := filepath.Glob(filepath.Join(dir, "*.1"))
	if mandoc, err := exec.LookPath("mandoc"); err == nil {
		out, _ := exec.Command(mandoc, append([]string{"-T", "lint", "-W", "warning"}, files...)...).CombinedOutput()
		for line := range strings.Lines(string(out)) {
			if !strings.Contains(line, "missing date") { // on purpose
				t.Error(line)
			}
		}
	}
	if man, err := exec.LookPath("man"); err == nil {
		for _, f := range files {
			c := exec.Command(man, "--warnings", "-E", "UTF-8", "-Tutf8", "-Z", "-l", f)
			c.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANROFFSEQ=")
			var complaints strings.Builder
			c.Stderr = &complaints
			if err := c.Run(); err != nil || complaints.Len() > 0 {
				t.Errorf("%s: %v %s", filepath.Base(f), err, complaints.String())
			}
		}
	}
}

func TestRoff(t *testing.T) {
	for in, want := range map[string]string{
		"plain": "plain", ".not a request": `\&.not a request`, "'nor this": `\&'nor this`, `C:\x`: `C:\ex`, "-w, --weight": `\-w, \-\-weight`,
	} {
		if got := roff(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
