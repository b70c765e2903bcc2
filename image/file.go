package image

import (
	"encoding/binary"
	"fmt"
	"hash/crc64"
)

// Version of the format. A program reads its own version only: another may have
// other fields.
const Version = 1

// magic begins every image.
const magic = "PKTDIMG\n"

// A file is the magic, the version (4 bytes) and parts. A part is its kind and
// number (4 bytes each), the length of what it holds (8), that, and a CRC-64 (ECMA)
// over all of this. The last part, of kind end, holds the number of parts in front of
// it and the bytes that they take. Everything is little-endian.
const (
	headLen     = len(magic) + 4
	partHeadLen = 16
	sumLen      = 8
	end         = 0
)

// Kind says what a part holds. 0 is the format's own.
type Kind uint32

// Part is one part of a file. It refers to the file's bytes.
type Part struct {
	Kind    Kind
	Payload []byte
	framed  []byte // with head and checksum
}

func table() *crc64.Table { return crc64.MakeTable(crc64.ECMA) } // kept by package crc64

// AppendHead begins a file.
func AppendHead(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(append(b, magic...), Version)
}

// AppendPart appends part number n of a file, whose payload fill appends.
func AppendPart(b []byte, kind Kind, n int, fill func([]byte) []byte) []byte {
	at := len(b)
	b = binary.LittleEndian.AppendUint32(b, uint32(kind))
	b = binary.LittleEndian.AppendUint32(b, uint32(n))
	b = append(b, make([]byte, 8)...)
	b = fill(b)
	binary.LittleEndian.PutUint64(b[at+8:], uint64(len(b)-at-partHeadLen))
	return binary.LittleEndian.AppendUint64(b, crc64.Checksum(b[at:], table()))
}

// AppendEnd ends a file of so many parts, which take size bytes together.
func AppendEnd(b []byte, parts int, size int64) []byte {
	return AppendPart(b, end, parts, func(b []byte) []byte {
		b = binary.LittleEndian.AppendUint32(b, uint32(parts))
		return binary.LittleEndian.AppendUint64(b, uint64(size))
	})
}

// Parts takes a whole file apart. It does not look at checksums: Part.Check does.
func Parts(file []byte) ([]Part, error) {
	if len(file) < headLen || string(file[:len(magic)]) != magic {
		return nil, fmt.Errorf("no image of a director: it does not begin with %q", magic)
	}
	if v := binary.LittleEndian.Uint32(file[len(magic):]); v != Version {
		return nil, fmt.Errorf("an image of version %d: this program reads version %d", v, Version)
	}
	var all []Part
	for rest := file[headLen:]; ; {
		if len(rest) < partHeadLen+sumLen {
			return nil, fmt.Errorf("the image ends early: %d bytes into part %d", len(rest), len(all))
		}
		kind, n := binary.LittleEndian.Uint32(rest), binary.LittleEndian.Uint32(rest[4:])
		size := binary.LittleEndian.Uint64(rest[8:])
		if size > uint64(len(rest)-partHeadLen-sumLen) {
			return nil, fmt.Errorf("the image ends early: part %d has %d bytes, %d are left", len(all), size, len(rest)-partHeadLen-sumLen)
		}
		if int(n) != len(all) {
			return nil, fmt.Errorf("part %d of the image calls itself %d", len(all), n)
		}
		whole := partHeadLen + int(size) + sumLen
		p := Part{Kind(kind), rest[partHeadLen : partHeadLen+int(size) : partHeadLen+int(size)], rest[:whole:whole]}
		before := len(file) - headLen - len(rest)
		rest = rest[whole:]
		if kind != end {
			all = append(all, p)
			continue
		}
		if err := p.Check(); err != nil {
			return nil, err
		}
		x := Reading(p.Payload)
		var parts uint32
		var bytes uint64
		Num(x, &parts)
		Num(x, &bytes)
		switch {
		case x.End() != nil || int(parts) != len(all) || bytes != uint64(before):
			return nil, fmt.Errorf("the image has %d parts of %d bytes, its end says %d of %d", len(all), before, parts, bytes)
		case len(rest) > 0:
			return nil, fmt.Errorf("%d bytes follow the image's end", len(rest))
		}
		return all, nil
	}
}

// Check holds a part against its checksum.
func (p *Part) Check() error {
	body := p.framed[:len(p.framed)-sumLen]
	if crc64.Checksum(body, table()) != binary.LittleEndian.Uint64(p.framed[len(body):]) {
		return fmt.Errorf("a part of the image is damaged: the checksum of its %d bytes (kind %d) is wrong", len(p.Payload), p.Kind)
	}
	return nil
}
