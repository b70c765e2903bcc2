package filter

import "strings"

// wordKind is a kind of word.
type wordKind uint8

const (
	wordEnd wordKind = iota
	wordName
	wordNumber // or an address: it begins with a digit, or has a colon
	wordSign
)

// word is one word of an expression.
type word struct {
	kind wordKind
	text string
	at   int // bytes in front of it
}

// lexer cuts an expression into words.
type lexer struct {
	text     string
	at       int
	brackets int // "[" that are open: a colon is a sign in there
}

// signs that are longer than one byte.
func longSigns() []string { return []string{"&&", "||", "<<", ">>", "<=", ">=", "!=", "=="} }

// next returns the next word.
func (l *lexer) next() word {
	for l.at < len(l.text) && strings.IndexByte(" \t\r\n", l.text[l.at]) >= 0 {
		l.at++
	}
	if l.at == len(l.text) {
		return word{kind: wordEnd, at: l.at}
	}
	rest := l.text[l.at:]
	if n := l.wordLength(rest); n > 0 {
		w := word{kind: wordName, text: rest[:n], at: l.at}
		if c := rest[0]; c >= '0' && c <= '9' || strings.IndexByte(w.text, ':') >= 0 {
			w.kind = wordNumber
		}
		l.at += n
		return w
	}
	n := 1
	for _, s := range longSigns() {
		if strings.HasPrefix(rest, s) {
			n = len(s)
		}
	}
	switch rest[0] {
	case '[':
		l.brackets++
	case ']':
		l.brackets = max(0, l.brackets-1)
	}
	w := word{kind: wordSign, text: rest[:n], at: l.at}
	l.at += n
	return w
}

// wordLength is how long a name, number or address at the start of s is; 0: there
// is none. A net's length belongs to it, and so does the minus in "80-90" and
// "tcp-syn"; with spaces around it, it is a sign.
func (l *lexer) wordLength(s string) int {
	n := 0
	if s[0] == '\\' { // keeps a name from being taken for a keyword
		n = 1
	}
	first := n
	for n < len(s) && (isWord(s[n]) || s[n] == '-' && l.joins(s, first, n) || s[n] == ':' && l.brackets == 0) {
		n++
	}
	if n == first {
		return 0
	}
	if address := strings.ContainsAny(s[:n], ".:"); address && n < len(s) && s[n] == '/' && l.brackets == 0 {
		for n++; n < len(s) && isWord(s[n]); n++ {
		}
	}
	return n
}

// joins reports whether the minus at n is part of the word that begins at first.
func (l *lexer) joins(s string, first, n int) bool {
	if n == first || n+1 == len(s) || !isWord(s[n+1]) {
		return false
	}
	digit := s[first] >= '0' && s[first] <= '9'
	return !digit || l.brackets == 0
}

func isWord(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == '.'
}
