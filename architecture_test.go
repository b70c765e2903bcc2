// Package pktdirector_test holds the rules of ARCHITECTURE.md that a machine
// can check.
package pktdirector_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "pktdirector"

// mayImport gives, per package, which packages of the module it may import.
// Packages that are not listed here (tests' helpers apart) fail the test, so
// that a new one finds its place first.
func mayImport() map[string][]string {
	return map[string][]string{
		"packet":          {},
		"image":           {"packet"},
		"lvs":             {"packet", "image"},
		"ftp":             {"packet", "image"},
		"sched":           {"packet", "image", "lvs"},
		"conntrack":       {"packet", "image", "lvs"},
		"modes/nat":       {"packet", "lvs", "conntrack"},
		"modes/fullnat":   {"packet", "lvs", "conntrack", "modes/nat"},
		"modes/dr":        {"packet", "lvs", "conntrack"},
		"modes/tun":       {"packet", "lvs", "conntrack"},
		"capture":         {"packet"},
		"capture/filter":  {"packet"},
		"capture/judge":   {"packet", "lvs", "sched", "capture"},
		"capture/replay":  {"packet", "lvs", "dataplane", "capture", "capture/judge", "sim"},
		"dataplane":       {"packet", "image", "lvs", "ftp", "sched", "conntrack"},
		"dataplane/link":  {"packet", "dataplane", "capture"},
		"host":            {"packet", "lvs", "dataplane"},
		"control":         {"packet", "lvs", "sched", "conntrack", "capture/filter"},
		"control/migrate": {"packet", "lvs", "sched", "control"},
		"metrics":         {"lvs", "dataplane", "control"},
		"systemd":         {},
		"handover":        {},
		"sim":             {"packet", "lvs", "sched", "conntrack", "modes/nat", "modes/fullnat", "modes/dr", "modes/tun", "dataplane", "control"},
		// The lab's tools are programs of their own beside the director.
		"testbed":          {"packet", "lvs", "control", "testbed/traffic", "testbed/endpoint"},
		"testbed/traffic":  {},
		"testbed/endpoint": {"packet", "dataplane", "dataplane/link"},
	}
}

// testHelpers are imported by tests only.
func testHelpers() []string {
	return []string{"packet/packettest", "image/imagetest", "lvs/lvstest", "testbed/nstest"}
}

type listedPackage struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
}

func packages(t *testing.T) []listedPackage {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,Imports", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var list []listedPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listedPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
}

func TestImportsGoOneWay(t *testing.T) {
	rules := mayImport()
	for _, p := range packages(t) {
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		if name == "" || name == "cmd/pktdirector" || slices.Contains(testHelpers(), name) {
			continue // cmd joins everything
		}
		allowed, known := rules[name]
		if !known {
			t.Errorf("package %s has no place in the import order: give it one here and in ARCHITECTURE.md", name)
			continue
		}
		for _, imported := range p.Imports {
			own, ok := strings.CutPrefix(imported, module+"/")
			if ok && !slices.Contains(allowed, own) {
				t.Errorf("%s must not import %s", name, own)
			}
		}
	}
}

// TestTheEngineIsPure keeps clocks, sockets, goroutines and randomness out of
// the engine.
func TestTheEngineIsPure(t *testing.T) {
	pure := []string{"packet", "image", "lvs", "sched", "conntrack", "modes/nat", "modes/fullnat", "modes/dr", "modes/tun", "dataplane"}
	forbidden := []string{"os", "net", "syscall", "math/rand", "math/rand/v2", "crypto/rand", "log", "log/slog", "golang.org/x/sys/unix"}
	clocks := []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		if !slices.Contains(pure, name) {
			continue
		}
		for _, imported := range p.Imports {
			if slices.Contains(forbidden, imported) {
				t.Errorf("%s imports %s", name, imported)
			}
		}
		for _, file := range p.GoFiles {
			set := token.NewFileSet()
			f, err := parser.ParseFile(set, filepath.Join(p.Dir, file), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.GoStmt:
					t.Errorf("%s starts a goroutine", set.Position(n.Pos()))
				case *ast.SelectorExpr:
					if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(clocks, n.Sel.Name) {
						t.Errorf("%s reads a clock: time.%s", set.Position(n.Pos()), n.Sel.Name)
					}
				case *ast.FuncDecl:
					if n.Name.Name == "init" && n.Recv == nil {
						t.Errorf("%s is an init function", set.Position(n.Pos()))
					}
				}
				return true
			})
		}
	}
}
