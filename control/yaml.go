package control

import "fmt"

// CallYAML calls read, which reads text with the YAML library and does nothing else, and
// makes an error of a panic: the library has some about texts that are hardly YAML, such
// as a tag in front of a word where a list belongs. The caller's error names the file.
func CallYAML(read func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the YAML library fails on this text (%v): see that tags (!name), anchors and brackets are right", p)
		}
	}()
	return read()
}
