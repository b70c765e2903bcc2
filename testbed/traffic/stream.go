package traffic

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"io"
	"math/rand/v2"
	"sync"
)

// Stream returns a reader of n bytes that follow from the seed.
func Stream(seed uint64, n int64) io.Reader {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	return io.LimitReader(rand.NewChaCha8(key), n)
}

// chunk is how many bytes are read, hashed and sent at once.
const chunk = 256 << 10

// digest hashes and counts what is written to it. A server may answer an upload
// before it has all of it: the digest is read while the rest is still written.
type digest struct {
	mu    sync.Mutex // guards both
	hash  hash.Hash
	bytes int64
}

func newDigest() *digest { return &digest{hash: sha256.New()} }

func (d *digest) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bytes += int64(len(p))
	return d.hash.Write(p)
}

func (d *digest) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return hex.EncodeToString(d.hash.Sum(nil))
}

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
