package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// A file that says "watch: true" is loaded again however it is changed.
func TestTheFileIsWatched(t *testing.T) {
	text := func(weight int) string {
		return "watch: true\n" + caseFile("tcp", fmt.Sprintf("{address: 192.0.2.1, weight: %d}", weight))
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	b := newReloadBench(t, text(1))
	// The file is where a ConfigMap has it: a link to a folder that is exchanged.
	dir := filepath.Dir(b.file)
	version := func(n int, body string) {
		t.Helper()
		folder := filepath.Join(dir, fmt.Sprintf("..%d", n))
		must(os.Mkdir(folder, 0o755))
		must(os.WriteFile(filepath.Join(folder, "director.yaml"), []byte(body), 0o600))
		must(os.Symlink(filepath.Base(folder), filepath.Join(dir, "..data.new")))
		must(os.Rename(filepath.Join(dir, "..data.new"), filepath.Join(dir, "..data")))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	watch := func() { running.Go(func() { must(b.watch(ctx)) }) }
	defer func() { cancel(); running.Wait() }()
	watch()
	weight := func(want int64) {
		t.Helper()
		var is int64
		for range 200 {
			if is = b.director().Status()[0].Destinations[0].Weight; is == want {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
		t.Fatalf("the weight is %d, want %d", is, want)
	}
	quiet := func() {
		t.Helper()
		b.told.since()
		time.Sleep(2 * fileSettles)
		if got := b.told.since(); len(got) != 0 {
			t.Errorf("the log says %q", got)
		}
	}
	time.Sleep(100 * time.Millisecond) // for the watch to begin
	b.write(text(2))                   // an editor that moves a new file to its place
	weight(2)
	must(os.WriteFile(b.file, []byte(text(3)), 0o600)) // one that writes it where it is
	weight(3)
	must(os.Remove(b.file)) // one that removes it first
	time.Sleep(2 * fileSettles)
	must(os.WriteFile(b.file, []byte(text(4)), 0o600))
	weight(4)
	must(os.Chmod(b.file, 0o640))
	must(os.WriteFile(filepath.Join(dir, "else"), nil, 0o600))
	quiet() // nothing of the file's text changed

	version(1, text(5))
	must(os.Remove(b.file))
	must(os.Symlink(filepath.Join("..data", "director.yaml"), b.file))
	weight(5)
	version(2, text(6))
	weight(6)
	must(os.WriteFile(filepath.Join(dir, "..2", "director.yaml"), []byte(text(7)), 0o600)) // behind the link
	weight(7)

	elsewhere := filepath.Join(t.TempDir(), "real.yaml")
	must(os.WriteFile(elsewhere, []byte(text(8)), 0o600))
	must(os.Remove(b.file))
	must(os.Symlink(elsewhere, b.file))
	weight(8)
	must(os.WriteFile(elsewhere, []byte(text(9)), 0o600))
	weight(9)

	b.told.since()
	must(os.WriteFile(elsewhere, []byte("links: ["), 0o600))
	for range 100 {
		time.Sleep(20 * time.Millisecond)
		if got := b.told.since(); len(got) > 0 {
			if !strings.Contains(got[0], "not reloaded") {
				t.Errorf("the log says %q of a file that is none", got)
			}
			break
		}
	}
	weight(9)
	must(os.WriteFile(elsewhere, []byte(strings.Replace(text(10), "watch: true", "watch: false", 1)), 0o600))
	weight(10)
	must(os.WriteFile(elsewhere, []byte(text(11)), 0o600))
	quiet()
	weight(10)
	b.run("hand")
	weight(11)
	must(os.WriteFile(elsewhere, []byte(text(12)), 0o600))
	weight(12)
}
