package main

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var updatePages = flag.Bool("update-pages", false, "write what commands print into docs/debugging.md anew")

// TestTheDebuggingPageIsTrue runs every command that docs/debugging.md shows with its
// output, in the source tree as it were, and compares.
func TestTheDebuggingPageIsTrue(t *testing.T) {
	const begin, end = "\n```console\n", "\n```\n"
	name, err := filepath.Abs("../../docs/debugging.md")
	if err != nil {
		t.Fatal(err)
	}
	captures, err := filepath.Abs("../../capture")
	if err != nil {
		t.Fatal(err)
	}
	page := string(bytesOfFile(t, name))
	dir := t.TempDir()
	if err := os.Symlink(captures, filepath.Join(dir, "capture")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)

	var made strings.Builder
	ran := 0
	rest := page
	for {
		text, block, more := strings.Cut(rest, begin)
		made.WriteString(text)
		if !more {
			break
		}
		block, rest, more = strings.Cut(block, end)
		if !more {
			t.Fatal("a block of docs/debugging.md does not end")
		}
		made.WriteString(begin)
		commands := strings.Split("\n"+block, "\n$ ")[1:]
		for i, command := range commands {
			line, shown, _ := strings.Cut(command, "\n")
			out, ok := printed(t, strings.Fields(line))
			out = strings.TrimSuffix(out, "\n")
			if !ok {
				out = shown
			} else if ran++; out != shown {
				t.Errorf("$ %s\nprints\n%s\n--- the page shows\n%s", line, out, shown)
			}
			if i > 0 {
				made.WriteString("\n")
			}
			made.WriteString("$ " + line + "\n" + out)
		}
		made.WriteString(end)
	}
	const least = 5 // without tshark
	if ran < least {
		t.Errorf("%d commands were run, %d at least are shown", ran, least)
	}
	if *updatePages {
		if err := os.WriteFile(name, []byte(made.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// printed runs a command of the page; it reports false where a program is missing.
func printed(t *testing.T, words []string) (string, bool) {
	t.Helper()
	var b bytes.Buffer
	if words[0] == "pktdirector" {
		root := newRootCommand()
		root.SetOut(&b)
		root.SetErr(&b)
		root.SetArgs(words[1:])
		_ = root.Execute() // exit code 1 of what was found, which is printed
		return b.String(), true
	}
	if _, err := exec.LookPath(words[0]); err != nil {
		t.Logf("%s is missing: what it prints is not compared", words[0])
		return "", false
	}
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Stdout = &b
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v", words, err)
	}
	return b.String(), true
}
