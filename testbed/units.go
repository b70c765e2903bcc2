package testbed

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Where a machine of its own keeps what a lab installs on it.
const (
	installedProgram = "/usr/local/bin/pktdirector"
	installedConfig  = "/etc/pktdirector/director.yaml"
	unitDir          = "/etc/systemd/system"
)

// WriteFile writes a text file, with its directory.
type WriteFile struct{ Path, Text string }

func (o WriteFile) String() string {
	return fmt.Sprintf("install -D -m 644 /dev/stdin %s <<'END'\n%sEND", o.Path, o.Text)
}

// Apply implements Op.
func (o WriteFile) Apply() error {
	if err := os.MkdirAll(filepath.Dir(o.Path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(o.Path, []byte(o.Text), 0o644)
}

// Systemctl asks the machine's systemd for something.
type Systemctl struct{ Args string }

func (o Systemctl) String() string { return "systemctl " + o.Args }

// Apply implements Op. It runs systemctl: a machine that has no systemd cannot
// be installed on.
func (o Systemctl) Apply() error {
	out, err := exec.Command("systemctl", strings.Fields(o.Args)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", o, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Units returns the operations that make systemd run on a machine of its own
// what the lab runs on host h: the director, or a real server's programs.
func (t *Topology) Units(h *Host, link LinkKind, decap Decap) []Op {
	var ops []Op
	runs := map[string][]string{}
	switch h.Role {
	case Director:
		ops = append(ops, WriteFile{installedConfig, t.DirectorYAML(link)})
		runs["director"] = []string{"run", "-c", installedConfig}
	case RealServer:
		runs["serve"] = t.ServeArgs(h)
		runs["endpoint"] = t.EndpointArgs(h, decap)
	}
	for _, what := range []string{"director", "endpoint", "serve"} {
		args := runs[what]
		if args == nil {
			continue
		}
		unit := "pktdirector-" + what + ".service"
		ops = append(ops,
			WriteFile{filepath.Join(unitDir, unit), unitText(h.Name+" of lab "+t.Name+": "+what, args)},
			Systemctl{"daemon-reload"},
			Systemctl{"enable " + unit},
			Systemctl{"restart " + unit})
	}
	return ops
}

func unitText(about string, args []string) string {
	return fmt.Sprintf(`[Unit]
Description=%s
After=network.target

[Service]
ExecStart=%s %s
Restart=on-failure

[Install]
WantedBy=multi-user.target
`, about, installedProgram, strings.Join(args, " "))
}
