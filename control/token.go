package control

import (
	"bytes"
	"fmt"
	"os"
	"strings"
)

// Bounds of a bearer token in bytes. The shortest is 128 bits in hexadecimal.
const (
	minToken = 32
	maxToken = 4096
)

// readToken reads the bearer token in a file that nobody but its owner may read.
func readToken(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", fmt.Errorf("token: %w", err)
	case !info.Mode().IsRegular() || info.Size() > maxToken:
		return "", fmt.Errorf("token %s: must be a plain file of at most %d bytes", path, maxToken)
	case info.Mode().Perm()&0o077 != 0:
		return "", fmt.Errorf("token %s: others than its owner may use the file (mode %04o): chmod 600 it, and take another token if it was read", path, info.Mode().Perm())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	token := string(bytes.TrimSpace(text))
	if len(token) < minToken || strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return "", fmt.Errorf("token %s: must be one line of at least %d letters and digits, as \"openssl rand -hex 32\" prints it", path, minToken)
	}
	return token, nil
}
