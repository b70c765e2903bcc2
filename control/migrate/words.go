package migrate

import "strings"

// uncommented cuts a line of keepalived.conf at # or !, where that stands in no
// quotes.
func uncommented(line string) string {
	var quote byte
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '#' || c == '!':
			return line[:i]
		}
	}
	return line
}

// word is one of a line: its text without quotes.
type word struct {
	text   string
	quoted bool // a part of it was
}

// splitWords splits a line at blanks; quotes keep them, and are removed. A brace
// that ends a word stands for itself, as in "80{".
func splitWords(line string) []word {
	var all []word
	for i := 0; i < len(line); {
		if isBlank(line[i]) {
			i++
			continue
		}
		var w word
		w, i = nextWord(line, i)
		if !w.quoted && len(w.text) > 1 && strings.HasSuffix(w.text, "{") && !strings.Contains(w.text, "$") {
			all = append(all, word{text: strings.TrimSuffix(w.text, "{")}, word{text: "{"})
			continue
		}
		all = append(all, w)
	}
	return all
}

func isBlank(c byte) bool {
	return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\v' || c == '\f'
}

// nextWord reads the word that begins at i, and returns where it ends. A character
// behind a backslash stands for itself.
func nextWord(line string, i int) (w word, end int) {
	var b strings.Builder
	var quote byte
	for ; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\\' && i+1 < len(line):
			i++
			b.WriteByte(line[i])
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote, w.quoted = c, true
		case quote == 0 && isBlank(c):
			w.text = b.String()
			return w, i
		default:
			b.WriteByte(c)
		}
	}
	w.text = b.String()
	return w, i
}

// texts joins words for a message.
func texts(words []word) string {
	var all []string
	for _, w := range words {
		all = append(all, w.text)
	}
	return strings.Join(all, " ")
}
