package traffic

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"io"
	"math/rand/v2"
)

// Stream returns a reader of n bytes that follow from the seed.
func Stream(seed uint64, n int64) io.Reader {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	return io.LimitReader(rand.NewChaCha8(key), n)
}

// chunk is how many bytes are read, hashed and sent at once.
const chunk = 256 << 10

// digest hashes and counts what is written to it.
type digest struct {
	hash.Hash
	bytes int64
}

func newDigest() *digest { return &digest{Hash: sha256.New()} }

func (d *digest) Write(p []byte) (int, error) {
	d.bytes += int64(len(p))
	return d.Hash.Write(p)
}

// String returns the SHA-256 in hexadecimal.
func (d *digest) String() string { return hex.EncodeToString(d.Sum(nil)) }

// plainReader and plainWriter hide other methods than Read and Write from
// io.CopyBuffer, so that it uses the buffer it is given.
type (
	plainReader struct{ io.Reader }
	plainWriter struct{ io.Writer }
)

// copyChunks copies until EOF, a chunk at once.
func copyChunks(to io.Writer, from io.Reader) (int64, error) {
	return io.CopyBuffer(plainWriter{to}, plainReader{from}, make([]byte, chunk))
}
