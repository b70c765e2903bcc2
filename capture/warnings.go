package capture

import (
	"fmt"
	"strings"
)

// Warning is something that a file says wrongly or not at all, and that reading
// went on in spite of.
type Warning struct {
	Code  string // short and stable, such as cut-file
	File  string
	Text  string // what is wrong, in words, of the first case
	First uint64 // number of the packet where it was first seen, or before which; 0: of none
	Count uint64 // how often it was seen

	kind uint32 // those of one code, file and kind are counted together
}

// String returns the warning as a line.
func (w Warning) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: ", w.File)
	if w.First > 0 {
		fmt.Fprintf(&b, "packet %d: ", w.First)
	}
	b.WriteString(w.Text)
	if w.Count > 1 {
		fmt.Fprintf(&b, " (and %d more like it)", w.Count-1)
	}
	fmt.Fprintf(&b, " [%s]", w.Code)
	return b.String()
}

// Codes of warnings.
const (
	CutFile        = "cut-file"        // the file ends inside a record
	DamagedFile    = "damaged-file"    // from here on the file cannot be read; Next ends with the error, too
	NotInOrder     = "not-in-order"    // a packet is older than the one before it
	SkippedType    = "skipped-type"    // packets of a link type that is not read
	SkippedPacket  = "skipped-packet"  // packets whose lengths or interface contradict the rest of the file
	SkippedSection = "skipped-section" // a pcapng section of an unknown version
	EmptyRecord    = "empty-record"    // records of no bytes at all, as in zeros behind a file's end
	OddLength      = "odd-length"      // captured more than there was on the wire
	OddTime        = "odd-time"        // a fraction of a second above one, or a time beyond 1678 to 2262
	NoTime         = "no-time"         // a packet without a time: bears that of the one before
	LostPackets    = "lost-packets"    // the file says that packets were not captured
	TooMany        = "too-many"        // more interfaces or warnings than are kept
)

// Bounds of what is kept of a file.
const (
	maxWarnings   = 256
	maxInterfaces = 4096 // of a section
	maxText       = 1024 // bytes of a name or description
	maxComments   = 32   // of a packet
	maxComment    = 4096 // bytes of one
)

// warnings of all files of a reader: bounded, one for each file, code and kind.
type warnings struct{ list []Warning }

// add counts a warning that packet number gave reason to. text is called for the
// first of its kind alone.
func (w *warnings) add(file, code string, kind uint32, number uint64, text func() string) {
	for i := range w.list {
		if have := &w.list[i]; have.Code == code && have.kind == kind && have.File == file {
			have.Count++
			return
		}
	}
	if len(w.list) < maxWarnings {
		w.list = append(w.list, Warning{Code: code, File: file, Text: text(), First: number, Count: 1, kind: kind})
		return
	}
	last := &w.list[maxWarnings-1]
	if last.Code != TooMany {
		*last = Warning{Code: TooMany, File: file, Text: "more kinds of warnings than are kept"}
	}
	last.Count++
}
