package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pktdirector/control"
	"pktdirector/testbed/nstest"
)

// tool runs a program and returns what it writes.
func tool(t testing.TB, env []string, name string, args ...string) string {
	t.Helper()
	c := exec.Command(name, args...)
	c.Env = append(os.Environ(), env...)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// TestTheDebianPackage builds the package as make deb does, and looks into it, into
// a folder where it is unpacked, and into one where dpkg installs and removes it.
func TestTheDebianPackage(t *testing.T) {
	if testing.Short() {
		return // it builds the program anew
	}
	for _, needed := range []string{"make", "dpkg", "dpkg-deb"} {
		if _, err := exec.LookPath(needed); err != nil {
			nstest.Require(t, needed+" is missing: the Debian package cannot be built here")
		}
	}
	dir := t.TempDir()
	tool(t, nil, "make", "-C", "../..", "deb", "BUILD="+dir, "VERSION=1.2.3~test", "GO=go")
	arch := strings.TrimSpace(tool(t, nil, "dpkg", "--print-architecture"))
	deb := filepath.Join(dir, "pktdirector_1.2.3~test_"+arch+".deb")
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); !slices.Equal(left, []string{deb}) {
		t.Errorf("left in the folder: %q", left)
	}

	root := filepath.Join(dir, "root")
	tool(t, nil, "dpkg-deb", "--extract", deb, root)
	for path, mode := range map[string]os.FileMode{
		"usr/bin/pktdirector": 0o755, "usr/lib/systemd/system/pktdirector.service": 0o644, "etc/pktdirector/director.yaml": 0o644,
		"usr/share/man/man1/pktdirector.1.gz": 0o644, "usr/share/man/man1/pktdirector-run.1.gz": 0o644,
		"usr/share/bash-completion/completions/pktdirector": 0o644, "usr/share/zsh/vendor-completions/_pktdirector": 0o644,
		"usr/share/fish/vendor_completions.d/pktdirector.fish": 0o644,
		"usr/share/doc/pktdirector/copyright":                  0o644, "usr/share/doc/pktdirector/run.md": 0o644, "usr/share/doc/pktdirector/director.yaml": 0o644,
		"usr/share/doc/pktdirector/changelog.gz": 0o644,
	} {
		if info, err := os.Stat(filepath.Join(root, path)); err != nil || info.Mode() != mode || info.Size() == 0 {
			t.Errorf("%s: %v", path, err)
		}
	}
	// Debian's ipvsadm has /usr/sbin and /sbin: the link is elsewhere.
	link := filepath.Join(root, "usr/lib/pktdirector/bin/ipvsadm")
	if said := tool(t, nil, link, "--version"); !strings.HasPrefix(said, "ipvsadm v1.31") {
		t.Errorf("the link says %q", said)
	}
	if said := tool(t, nil, filepath.Join(root, "usr/bin/pktdirector"), "version"); said != "pktdirector 1.2.3~test\n" {
		t.Errorf("the program says %q", said)
	}
	copyright, _ := os.ReadFile(filepath.Join(root, "usr/share/doc/pktdirector/copyright"))
	for _, of := range []string{"MIT License", "github.com/spf13/cobra v", "github.com/prometheus/client_golang v", "The Go Authors"} {
		if !bytes.Contains(copyright, []byte(of)) {
			t.Errorf("copyright lacks %s", of)
		}
	}
	// The configuration is one that the director takes, and balances nothing.
	c, err := control.Load(filepath.Join(root, "etc/pktdirector/director.yaml"))
	if err != nil || len(c.Ruleset.Services) != 0 || c.Metrics != "" || c.Control != control.DefaultSocket {
		t.Errorf("the configuration: %v, %+v", err, c)
	}
	if said := strings.Fields(tool(t, nil, "dpkg-deb", "--info", deb, "conffiles")); !slices.Equal(said, []string{"/etc/pktdirector/director.yaml"}) {
		t.Errorf("conffiles: %q", said)
	}
	for _, script := range []string{"postinst", "prerm", "postrm"} {
		// What comments and messages say of it does not count.
		text := regexp.MustCompile(`(?m)^\s*#.*$|echo ".*$`).ReplaceAllString(tool(t, nil, "dpkg-deb", "--info", deb, script), "")
		if strings.Contains(text, "enable") || strings.Contains(text, "systemctl start") || strings.Contains(text, "restart") {
			t.Errorf("%s starts or enables the director:\n%s", script, text)
		}
	}
	if lintian, err := exec.LookPath("lintian"); err == nil {
		if out, err := exec.Command(lintian, "--allow-root", "--fail-on", "error,warning", deb).CombinedOutput(); err != nil {
			t.Errorf("lintian: %v\n%s", err, out)
		}
	}
	installs(t, deb, filepath.Join(dir, "installed"))
}

// installs has dpkg install a package below a folder, and remove it again.
func installs(t *testing.T, deb, root string) {
	if os.Geteuid() != 0 {
		t.Log("dpkg is not asked to install it: this is not root")
		return
	}
	for _, d := range []string{"info", "updates", "triggers"} {
		if err := os.MkdirAll(filepath.Join(root, "var/lib/dpkg", d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"status", "available"} {
		if err := os.WriteFile(filepath.Join(root, "var/lib/dpkg", f), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	dpkg := func(args ...string) {
		t.Helper()
		tool(t, nil, "dpkg", append([]string{"--root=" + root, "--force-script-chrootless", "--force-depends", "--log=" + filepath.Join(root, "log")}, args...)...)
	}
	there := func(path string, want bool) {
		t.Helper()
		if _, err := os.Lstat(filepath.Join(root, path)); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", path, err == nil, want)
		}
	}
	dpkg("--install", deb)
	there("usr/bin/pktdirector", true)
	config := filepath.Join(root, "etc/pktdirector/director.yaml")
	if err := os.WriteFile(config, []byte("# the operator's\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	dpkg("--install", deb) // again: the operator's stays
	if b, err := os.ReadFile(config); err != nil || string(b) != "# the operator's\n" {
		t.Errorf("after an upgrade the configuration is %q, %v", b, err)
	}
	if err := os.MkdirAll(filepath.Join(root, "var/lib/pktdirector"), 0o700); err != nil {
		t.Fatal(err)
	}
	dpkg("--remove", "pktdirector")
	there("usr/bin/pktdirector", false)
	there("etc/pktdirector/director.yaml", true)
	dpkg("--purge", "pktdirector")
	there("etc/pktdirector", false)
	there("var/lib/pktdirector", false)
}
