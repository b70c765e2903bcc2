package migrate

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Bounds of what keepalived.conf may grow to by what it includes and by what its
// definitions stand for.
const (
	maxLines    = 1 << 20
	maxIncludes = 16      // one inside the other
	maxNested   = 32      // definitions of several lines, one inside the other
	maxSingle   = 1000    // definitions that one line names, or is led to by them
	maxLine     = 1 << 20 // bytes of a line, or of the lines that a definition stands for
	maxWork     = 1 << 26 // bytes of all lines
)

// line is a line of keepalived.conf as it counts: comments, conditions, definitions
// and included files are dealt with.
type line struct {
	at    place
	words []word
}

// reader reads lines of keepalived.conf.
type reader struct {
	*migration
	defined map[string]string // what $NAME stands for; several lines are joined by \n
	lines   []line
	bytes   int // of all files
	work    int // bytes of lines that were looked at
	skip    int // depth of a block that does not count; 0: none
}

// definition is a line that gives a name a meaning: $NAME=VALUE.
func definition(text string) (name, value string, ok bool) {
	m := regexp.MustCompile(`^\s*\$([A-Za-z_][A-Za-z0-9_]*)=(.*)$`).FindStringSubmatch(text)
	if m == nil {
		return "", "", false
	}
	return m[1], m[2], true
}

// file reads a file's lines; nested is how many files include it.
func (r *reader) file(f File, nested int) error {
	if r.bytes += len(f.Text); r.bytes > maxText {
		return fmt.Errorf("%s: with it, the files are larger than %d bytes", f.Name, maxText)
	}
	var pending string // a definition of several lines
	var name string
	begins := 0
	n := 0
	for text := range strings.Lines(f.Text) {
		n++
		text = strings.TrimRight(uncommented(strings.TrimRight(text, "\r\n")), " \t")
		at := place{f.Name, n}
		more := strings.HasSuffix(text, `\`)
		if name != "" || more {
			text = strings.TrimSuffix(text, `\`)
			if name == "" {
				var ok bool
				if name, pending, ok = definition(text); !ok {
					r.remark(at, text, "a line that goes on in the next one is known in definitions ($NAME= \\) only: is left out; write it as one line")
					continue
				}
				begins = n
			} else {
				pending += "\n" + text
			}
			if !more {
				r.define(place{f.Name, begins}, name, pending)
				name = ""
			}
			continue
		}
		if err := r.line(at, text, nested, 0); err != nil {
			return err
		}
	}
	if name != "" {
		return fmt.Errorf("%s:%d: the definition of $%s goes on to the end of the file: its last line must not end in \\", f.Name, begins, name)
	}
	return nil
}

func (r *reader) define(_ place, name, value string) {
	if r.skip == 0 {
		r.defined[name] = strings.TrimSpace(value)
	}
}

// line reads one line without comment.
func (r *reader) line(at place, text string, nested, depth int) error {
	switch {
	case depth > maxNested:
		return fmt.Errorf("%s: definitions stand for each other without end: %s", at, shown(text))
	case len(text) > maxLine:
		return fmt.Errorf("%s: is longer than %d bytes, with what its definitions stand for", at, maxLine)
	case len(r.lines) >= maxLines || r.work > maxWork:
		return fmt.Errorf("%s: there are more than %d lines, with what is included and what definitions stand for", at, maxLines)
	}
	r.work += len(text) + 1
	text = strings.TrimSpace(text)
	if text == "" {
		return nil
	}
	if r.skip > 0 {
		r.skipped(text)
		return nil
	}
	if text[0] == '@' {
		rest, counts := r.condition(at, text)
		if !counts {
			if strings.HasSuffix(rest, "{") {
				r.skip = 1
			}
			return nil
		}
		return r.line(at, rest, nested, depth+1)
	}
	if name, value, ok := definition(text); ok {
		r.define(at, name, value)
		return nil
	}
	if text[0] == '~' {
		r.remark(at, text, "repeated lines (~SEQ, ~LST) are not known: is left out; write the lines out")
		if strings.HasSuffix(text, "{") {
			r.skip = 1
		}
		return nil
	}
	if words := strings.Fields(text); len(words) == 2 && slices.Contains([]string{"include", "includer", "includem", "includew", "includeb", "includea"}, words[0]) {
		return r.include(at, text, words[1], nested)
	}
	expanded, changed, err := r.expandAll(at, text)
	if err != nil {
		return err
	}
	if changed {
		for part := range strings.SplitSeq(expanded, "\n") {
			if err := r.line(at, part, nested, depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	r.lines = append(r.lines, line{at, splitWords(text)})
	return nil
}

// skipped passes a line of a block over that does not count.
func (r *reader) skipped(text string) {
	for _, w := range splitWords(text) {
		switch {
		case w.quoted:
		case w.text == "{":
			r.skip++
		case w.text == "}":
			r.skip = max(r.skip-1, 0)
		}
	}
}

// condition reads @id and @^id in front of a line, and reports whether the line
// counts.
func (r *reader) condition(at place, text string) (rest string, counts bool) {
	id, rest, _ := strings.Cut(text[1:], " ")
	rest = strings.TrimSpace(rest)
	id, other := strings.CutPrefix(id, "^")
	counts = (id == r.ConfigID) != other
	if r.ConfigID != "" {
		return rest, counts
	}
	if other {
		r.remark(at, text, "is taken over, though keepalived leaves it out on %s: name the machine by --config-id", id)
	} else {
		r.remark(at, text, "is left out: it counts on %s only: name the machine by --config-id", id)
	}
	return rest, counts
}

// include reads the files that a line names.
func (r *reader) include(at place, text, pattern string, nested int) error {
	if r.Include == nil {
		r.remark(at, text, "is left out: what is included can be read when keepalived.conf is named as a file")
		return nil
	}
	if nested >= maxIncludes {
		return fmt.Errorf("%s: %s: files include each other more than %d deep", at, shown(text), maxIncludes)
	}
	files, err := r.Include(at.file, pattern)
	if err != nil {
		r.remark(at, text, "is left out: %v", err)
		return nil
	}
	if len(files) == 0 {
		r.remark(at, text, "names no file")
	}
	for _, f := range files {
		if err := r.file(f, nested+1); err != nil {
			return err
		}
	}
	return nil
}

// expandAll puts in place of names what they stand for, until there is none left or
// it is several lines, whose names are for when they are read.
func (r *reader) expandAll(at place, text string) (expanded string, changed bool, err error) {
	for range maxSingle {
		next, more := r.expand(text)
		if !more {
			return text, changed, nil
		}
		r.work += len(next)
		if len(next) > maxLine || r.work > maxWork {
			return "", false, fmt.Errorf("%s: is longer than %d bytes, with what its definitions stand for", at, maxLine)
		}
		text, changed = next, true
		if strings.Contains(text, "\n") {
			return text, true, nil
		}
	}
	return "", false, fmt.Errorf("%s: definitions stand for each other without end: %s", at, shown(text))
}

// expand puts what the first definition stands for in place of its name: ${NAME}, or
// $NAME before a blank or the line's end. A name that is not defined stays.
func (r *reader) expand(text string) (string, bool) {
	for i := 0; i < len(text); i++ {
		if text[i] != '$' {
			continue
		}
		rest := text[i+1:]
		name, end, ok := strings.Cut(strings.TrimPrefix(rest, "{"), "}")
		if !ok || !strings.HasPrefix(rest, "{") {
			name, end = rest, ""
			if blank := strings.IndexFunc(rest, func(c rune) bool { return c == ' ' || c == '\t' }); blank >= 0 {
				name, end = rest[:blank], rest[blank:]
			}
		}
		if value, known := r.defined[name]; known {
			return text[:i] + value + end, true
		}
	}
	return text, false
}
