package control_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"pktdirector/control"
)

func TestWhereAndHowOftenSnapshotsAreWritten(t *testing.T) {
	const elsewhere, usual = "control: /run/blue/lb.sock\n", ""
	for _, c := range []struct {
		name, text, folder string
		file               string
		every              time.Duration
	}{
		{"nothing is said", usual, "", "/run/pktdirector/pktdirector.snapshot", 10 * time.Second},
		{"nothing is said, under systemd", usual, "/var/lib/pktdirector", "/var/lib/pktdirector/pktdirector.snapshot", 10 * time.Second},
		{"another socket", elsewhere, "", "/run/blue/lb.snapshot", 10 * time.Second},
		{"another socket, under systemd", elsewhere, "/var/lib/pktdirector", "/var/lib/pktdirector/lb.snapshot", 10 * time.Second},
		{"a file", "snapshot: {file: /srv/state}\n", "/var/lib/pktdirector", "/srv/state", 10 * time.Second},
		{"a time", "snapshot: {every: 3}\n", "", "/run/pktdirector/pktdirector.snapshot", 3 * time.Second},
		{"the usual time", "snapshot: {every: 10}\n", "", "/run/pktdirector/pktdirector.snapshot", 10 * time.Second},
		{"none", "snapshot: {every: 0, file: /srv/state}\n", "/var/lib/pktdirector", "", 10 * time.Second},
	} {
		conf, err := control.Parse("d.yaml", []byte("links: [{name: eth0}]\n"+c.text+"services: []\n"))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if file, every := conf.SnapshotFile(c.folder), conf.SnapshotEvery(); file != c.file || every != c.every {
			t.Errorf("%s: in %q every %v, want %q every %v", c.name, file, every, c.file, c.every)
		}
		var printed bytes.Buffer
		if err := conf.Print(&printed); err != nil {
			t.Fatal(err)
		}
		again, err := control.Parse("d.yaml", printed.Bytes())
		if err != nil || again.Snapshot != conf.Snapshot {
			t.Errorf("%s: printed and read again it is %+v, %v", c.name, again, err)
		}
	}
}

func TestSnapshotsThatMakeNoSense(t *testing.T) {
	for text, want := range map[string]string{
		"{file: state}":     `snapshot.file: "state" is no path of a file: write an absolute one`,
		"{file: /var/lib/}": `snapshot.file: "/var/lib/" is no path of a file`,
		"{every: -1}":       "snapshot.every: ",
		"{every: 86401}":    "86400",
		"{every: 1.5}":      "snapshot.every: ",
		"{often: 1}":        "the keys are file, every",
		"off":               "snapshot: must be a mapping",
	} {
		_, err := control.Parse("d.yaml", []byte("links: [{name: eth0}]\nsnapshot: "+text+"\nservices: []\n"))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "d.yaml:2:") {
			t.Errorf("%s: %v, want %q in line 2", text, err, want)
		}
	}
}
