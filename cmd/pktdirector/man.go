package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newManCommand writes the manual. It is for those who make packages.
func newManCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "man DIR",
		Short:   "Write the manual pages of all commands into a folder",
		Example: "  pktdirector man /usr/local/share/man/man1",
		Args:    cobra.ExactArgs(1),
		Hidden:  true,
		RunE: failing(func(_ *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			for name, page := range manPages(newRootCommand()) {
				if err := os.WriteFile(filepath.Join(args[0], name), page, 0o644); err != nil {
					return err
				}
			}
			return nil
		}),
	}
}

// manPages returns the pages of a command and of those below it that help lists, by
// file name. They have no date: the same commands make the same pages.
func manPages(cmd *cobra.Command) map[string][]byte {
	pages := map[string][]byte{manName(cmd) + ".1": manPage(cmd)}
	for _, c := range documented(cmd) {
		for name, page := range manPages(c) {
			pages[name] = page
		}
	}
	return pages
}

// documented lists the commands below cmd that have a page.
func documented(cmd *cobra.Command) (all []*cobra.Command) {
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" {
			all = append(all, c)
		}
	}
	return all
}

func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manPage writes a command's page as man(7) describes it.
func manPage(cmd *cobra.Command) []byte {
	cmd.InitDefaultHelpFlag()
	var b bytes.Buffer
	fmt.Fprintf(&b, ".TH %s 1 \"\" pktdirector \"User Commands\"\n", strings.ToUpper(manName(cmd)))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(manName(cmd)), roff(cmd.Short))
	synopsis := cmd.UseLine()
	if below := documented(cmd); len(below) > 0 {
		synopsis = cmd.CommandPath() + " COMMAND"
	}
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", roff(synopsis))
	b.WriteString(".SH DESCRIPTION\n")
	paragraphs(&b, strings.TrimSpace(cmd.Long), cmd.Short+".")
	if below := documented(cmd); len(below) > 0 {
		b.WriteString(".SH COMMANDS\n")
		for _, c := range below {
			fmt.Fprintf(&b, ".TP\n.BR %s (1)\n%s.\n", roff(manName(c)), roff(c.Short))
		}
	}
	flags(&b, "OPTIONS", cmd.NonInheritedFlags())
	flags(&b, "OPTIONS OF ALL COMMANDS", cmd.InheritedFlags())
	if cmd.Example != "" {
		b.WriteString(".SH EXAMPLES\n")
		verbatim(&b, strings.Trim(cmd.Example, "\n"))
	}
	if cmd.HasParent() {
		fmt.Fprintf(&b, ".SH SEE ALSO\n.BR %s (1)\n", roff(manName(cmd.Parent())))
	}
	return b.Bytes()
}

// flags writes a section with the flags that help lists.
func flags(b *bytes.Buffer, title string, set *pflag.FlagSet) {
	if set.HasAvailableFlags() {
		fmt.Fprintf(b, ".SH %s\n", title)
	}
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		if value != "" {
			value = " " + value
		}
		fmt.Fprintf(b, ".TP\n.B %s\n%s", roff(name+value), roff(usage))
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "[]" && f.DefValue != "0s" {
			fmt.Fprintf(b, " (default %s)", roff(f.DefValue))
		}
		b.WriteString("\n")
	})
}

// paragraphs writes text, or instead where there is none. Indented lines stay as
// they are.
func paragraphs(b *bytes.Buffer, text, instead string) {
	if text == "" {
		text = instead
	}
	for i, p := range strings.Split(text, "\n\n") {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		lines := strings.Split(strings.Trim(p, "\n"), "\n")
		for j := 0; j < len(lines); {
			end := j
			for end < len(lines) && strings.HasPrefix(lines[end], "  ") {
				end++
			}
			if end > j {
				verbatim(b, strings.Join(lines[j:end], "\n"))
				j = end
				continue
			}
			fmt.Fprintln(b, roff(strings.TrimSpace(lines[j])))
			j++
		}
	}
}

// verbatim writes lines that are not filled.
func verbatim(b *bytes.Buffer, text string) {
	b.WriteString(".nf\n")
	for line := range strings.Lines(text) {
		b.WriteString(roff(strings.TrimRight(line, "\n")) + "\n")
	}
	b.WriteString(".fi\n")
}

// roff escapes a line: a backslash, a hyphen that is a minus, and what would be a
// request at the line's beginning.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\t", "    ").Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}
