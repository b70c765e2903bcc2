package control

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Snapshot says where a director keeps what its next start goes on from. The zero
// value is the default.
type Snapshot struct {
	Off   bool          // none is written or read
	File  string        // an absolute path; empty: see SnapshotFile
	Every time.Duration // 0: DefaultSnapshotEvery
}

// The usual time between two snapshots, and the longest.
const (
	DefaultSnapshotEvery = 10 * time.Second
	maxSnapshotEvery     = 24 * time.Hour
)

func snapshotFields() []field {
	every := integerFrom(0, int64(maxSnapshotEvery/time.Second))
	every.Default = int64(DefaultSnapshotEvery / time.Second)
	return []field{
		{"file", "where it is kept; left out: in $STATE_DIRECTORY, which systemd sets, or else beside the control socket", &schema{Type: "string", Pattern: "^/.*[^/]$"}},
		{"every", "seconds between two; 0: none is written or read", every},
	}
}

// SnapshotFile returns where the snapshot is kept; nowhere: "". Where the file does not say,
// it has the control socket's name and is in folder, which the service manager keeps for
// the director, or, where that is "", beside the socket.
func (c *Config) SnapshotFile(folder string) string {
	switch {
	case c.Snapshot.Off:
		return ""
	case c.Snapshot.File != "":
		return c.Snapshot.File
	case folder == "":
		folder = filepath.Dir(c.Control)
	}
	return filepath.Join(folder, strings.TrimSuffix(filepath.Base(c.Control), ".sock")+".snapshot")
}

// SnapshotEvery returns the time between two snapshots.
func (c *Config) SnapshotEvery() time.Duration {
	if c.Snapshot.Every == 0 {
		return DefaultSnapshotEvery
	}
	return c.Snapshot.Every
}

func decodeSnapshot(c *Config, v value) {
	if v.missing() {
		return
	}
	m := v.mapping(keys(snapshotFields())...)
	if f := m["file"]; !f.missing() {
		if s, ok := f.text(); ok {
			if !filepath.IsAbs(s) || strings.HasSuffix(s, "/") || strings.ContainsRune(s, 0) {
				f.wrong("%q is no path of a file: write an absolute one, like /var/lib/pktdirector/pktdirector.snapshot", s)
			}
			c.Snapshot.File = s
		}
	}
	if e := m["every"]; !e.missing() {
		seconds, ok := e.integer(0, int64(maxSnapshotEvery/time.Second))
		c.Snapshot.Off = ok && seconds == 0
		if c.Snapshot.Every = time.Duration(seconds) * time.Second; c.Snapshot.Every == DefaultSnapshotEvery {
			c.Snapshot.Every = 0
		}
	}
}

// printSnapshot writes what decodeSnapshot reads.
func printSnapshot(b *strings.Builder, s Snapshot) {
	var all []string
	if s.File != "" {
		all = append(all, "file: "+strconv.Quote(s.File))
	}
	switch {
	case s.Off:
		all = append(all, "every: 0")
	case s.Every != 0:
		all = append(all, fmt.Sprintf("every: %d", s.Every/time.Second))
	}
	if len(all) > 0 {
		fmt.Fprintf(b, "snapshot: {%s}\n", strings.Join(all, ", "))
	}
}

// SnapshotState is how a director keeps what its next start goes on from.
type SnapshotState struct {
	File     string    `json:"file"`
	Written  time.Time `json:"written,omitzero"`   // when the last one was, by this director
	Bytes    int64     `json:"bytes,omitempty"`    // of the last one
	Took     float64   `json:"took,omitempty"`     // seconds to write it
	Failures uint64    `json:"failures"`           // since the start
	Error    string    `json:"error,omitempty"`    // of the last try; empty: it was written
	Restored *Restored `json:"restored,omitempty"` // what this director went on from
}

// Restored is what a director went on from.
type Restored struct {
	Age         float64 `json:"age"` // seconds between the snapshot and the start
	Connections int     `json:"connections"`
	Templates   int     `json:"templates"`
}
