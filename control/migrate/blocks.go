package migrate

import "fmt"

// statement is a line of keepalived.conf, with the block behind it where it has one.
type statement struct {
	at    place
	words []word
	block bool
	body  []*statement
	last  int // line of the block's end; 0: in another file
}

// key is the statement's first word.
func (s *statement) key() string { return s.words[0].text }

// args are the words behind it.
func (s *statement) args() []string {
	var all []string
	for _, w := range s.words[1:] {
		all = append(all, w.text)
	}
	return all
}

func (s *statement) String() string { return texts(s.words) }

// maxDepth is how many blocks may stand one inside the other; keepalived knows five.
const maxDepth = 32

// blocks makes statements of lines: { opens a block of the words before it, on the
// same line or the one before; } ends it.
func blocks(lines []line) ([]*statement, error) {
	root := &statement{}
	open := []*statement{root}
	for _, l := range lines {
		var now *statement
		for _, w := range l.words {
			in := open[len(open)-1]
			switch {
			case w.text == "{" && !w.quoted:
				if now == nil && len(in.body) > 0 && !in.body[len(in.body)-1].block {
					now = in.body[len(in.body)-1]
				}
				if now == nil || now.block {
					return nil, fmt.Errorf("%s: { opens a block without a name: write the name in front of it", l.at)
				}
				if len(open) > maxDepth {
					return nil, fmt.Errorf("%s: more than %d blocks stand one inside the other", l.at, maxDepth)
				}
				now.block = true
				open, now = append(open, now), nil
			case w.text == "}" && !w.quoted:
				if len(open) == 1 {
					return nil, fmt.Errorf("%s: } ends no block: one { is missing above, or this one is too many", l.at)
				}
				if in.at.file == l.at.file {
					in.last = l.at.line
				}
				open, now = open[:len(open)-1], nil
			case now == nil:
				now = &statement{at: l.at, words: []word{w}}
				in.body = append(in.body, now)
			default:
				now.words = append(now.words, w)
			}
		}
	}
	if len(open) > 1 {
		s := open[len(open)-1]
		return nil, fmt.Errorf("%s: the block %s is not closed: one } is missing", s.at, shown(s.String()))
	}
	return root.body, nil
}
