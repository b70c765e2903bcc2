package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Elsewhere than on a terminal, pictures follow each other with the time in front;
// with bare, nothing but them. The end of the context is no error.
func TestWatchingWithoutATerminal(t *testing.T) {
	for _, bare := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
			defer stop()
			var out bytes.Buffer
			n := 0
			began := time.Now()
			err := watch(ctx, 2*time.Second, &out, "x", bare, func(w io.Writer) error {
				n++
				_, err := fmt.Fprintf(w, "picture %d\n", n)
				return err
			})
			want := "picture 1\npicture 2\npicture 3\n"
			if !bare {
				want = ""
				for i := range 3 {
					if i > 0 {
						want += "\n"
					}
					want += fmt.Sprintf("%s\npicture %d\n", began.Add(time.Duration(i)*2*time.Second).Format(time.RFC3339), i+1)
				}
			}
			if err != nil || out.String() != want {
				t.Errorf("%v:\n%s\nwant\n%s", err, out.String(), want)
			}
		})
	}
}

// A director that is not there at first is an error; one that goes is waited for.
func TestWatchingWhenTheDirectorGoes(t *testing.T) {
	gone := errors.New("no director listens")
	if err := watch(t.Context(), time.Second, io.Discard, "x", false, func(io.Writer) error { return gone }); !errors.Is(err, gone) {
		t.Errorf("at first: %v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer stop()
		var out bytes.Buffer
		n := 0
		err := watch(ctx, time.Second, &out, "x", true, func(w io.Writer) error {
			if n++; n == 2 {
				return gone
			}
			_, err := fmt.Fprintln(w, n)
			return err
		})
		if err != nil || out.String() != "1\n3\n4\n" {
			t.Errorf("%v, %q", err, out.String())
		}
	})
}

// A picture is cut to the screen, says what is not shown, and is drawn over the one
// before.
func TestAPictureIsCutToTheScreen(t *testing.T) {
	f := frame{rows: 4, cols: 5}
	fmt.Fprint(&f, "one\ntw")
	fmt.Fprint(&f, "o two\n\ndreißig\nfour\n")
	var b strings.Builder
	if err := f.show(&b, true); err != nil {
		t.Fatal(err)
	}
	want := clearScreen + toTopLeft + "one" + lineEnd + "two t" + lineEnd + lineEnd + clearBelow + reverseVideo + "2 more" + plainVideo + clearLine + "\r"
	if b.String() != want {
		t.Errorf("%q\nwant\n%q", b.String(), want)
	}
	b.Reset()
	small := frame{rows: 4, cols: 5}
	fmt.Fprint(&small, "dreißig\n")
	if err := small.show(&b, false); err != nil || b.String() != toTopLeft+"dreiß"+lineEnd+clearBelow {
		t.Errorf("%v, %q", err, b.String())
	}
}
