package handover_test

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"pktdirector/handover"
)

// asSuccessor makes the test binary behave as a successor of the kind that it names.
const asSuccessor = "PKTDIRECTOR_TEST_SUCCESSOR"

func TestMain(m *testing.M) {
	if kind := os.Getenv(asSuccessor); kind != "" {
		os.Exit(successor(kind))
	}
	os.Exit(m.Run())
}

// said is a message.
type said struct {
	Text string `json:"text"`
	Env  string `json:"env,omitempty"`
}

// successor returns an exit code.
func successor(kind string) int {
	c, err := handover.Inherited()
	if err != nil || c == nil {
		return 9
	}
	ctx := context.Background()
	switch kind {
	case "echo": // files are written to, texts come back
		for {
			var s said
			files, err := c.Receive(ctx, &s)
			if errors.Is(err, io.EOF) {
				return 0
			}
			for _, f := range files {
				f.WriteString(s.Text)
				f.Close()
			}
			if err != nil || c.Send(ctx, said{Text: s.Text, Env: strings.Join(os.Environ(), " ")}, files[:0]...) != nil {
				return 8
			}
		}
	case "hangs":
		time.Sleep(time.Hour)
	}
	return 7
}

func start(t *testing.T, kind string) *handover.Successor {
	t.Helper()
	file, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s, err := handover.Start(file, []string{"pktdirector", "run"}, append(os.Environ(), asSuccessor+"="+kind, "PKTDIRECTOR_PREDECESSOR=77"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Kill() })
	return s
}

func TestMessagesAndFilesGoBothWays(t *testing.T) {
	s := start(t, "echo")
	var files []*os.File
	for range 64 {
		f, err := handover.NewMemory("test")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files = append(files, f)
	}
	long := strings.Repeat("x", 60000)
	for _, text := range []string{"first", "", long} {
		if err := s.Send(t.Context(), said{Text: text}, files...); err != nil {
			t.Fatal(err)
		}
		var got said
		if _, err := s.Receive(t.Context(), &got); err != nil || got.Text != text || strings.Contains(got.Env, "PREDECESSOR") {
			t.Fatalf("%.20q came back as %.20q with %q, %v", text, got.Text, got.Env, err)
		}
	}
	for i, f := range files {
		b, release, err := handover.Map(f)
		if err != nil || string(b) != "first"+long {
			t.Errorf("file %d has %d bytes, %v", i, len(b), err)
		}
		if err := release(); err != nil {
			t.Error(err)
		}
	}
	if err := s.Send(t.Context(), said{Text: long + long}); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("a message that is too long: %v", err)
	}
	if err := s.Send(t.Context(), said{}, append(files, files[0])...); err == nil {
		t.Error("too many files: sent")
	}
	s.Close()
	<-s.Ended()
	if how := s.How(); how != "exit status 0" {
		t.Errorf("the successor ended with %s", how)
	}
}

func TestSuccessorsThatDoNotAnswer(t *testing.T) {
	s := start(t, "ends")
	var got said
	if _, err := s.Receive(t.Context(), &got); !errors.Is(err, io.EOF) {
		t.Errorf("one that ends: %v, want EOF", err)
	}
	<-s.Ended()
	if s.How() != "exit status 7" {
		t.Errorf("it ended with %s", s.How())
	}
	s = start(t, "hangs")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("patience"))
	defer cancel()
	if _, err := s.Receive(ctx, &got); err == nil || err.Error() != "patience" {
		t.Errorf("one that hangs: %v", err)
	}
	if err := s.Kill(); err == nil || s.How() != "signal: killed" {
		t.Errorf("killed: %v, %s", err, s.How())
	}
	for _, path := range []string{"/does/not/exist", t.TempDir()} {
		if _, err := handover.Start(path, []string{"x"}, nil); err == nil {
			t.Errorf("%s was started", path)
		}
	}
}

func TestNobodysSuccessor(t *testing.T) {
	for value, want := range map[string]string{"": "", "x": "number", "0": "0", "65000": "65000"} {
		t.Setenv("PKTDIRECTOR_PREDECESSOR", value)
		if value == "0" {
			continue // standard input would be closed
		}
		c, err := handover.Inherited()
		if c != nil || (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v", value, c, err)
		}
		if os.Getenv("PKTDIRECTOR_PREDECESSOR") != "" {
			t.Error("those that this process starts would be told")
		}
	}
}
