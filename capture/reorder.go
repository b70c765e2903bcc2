package capture

// Bounds of a reordering window.
const (
	reorderTime  = 500_000_000 // ns
	reorderMost  = 16384       // packets
	reorderBytes = 32 << 20    // of their data
)

// reorder sorts the packets of a file with several interfaces by time. Programs
// that capture on several, as dumpcap, write each one's packets when its buffer is
// handed over: in order for each interface, but not from one to the other, up to a
// quarter of a second apart. Packets of one interface never change places.
//
// So each interface has a queue, and queues are merged: a heap holds those that are
// not empty, by their first packet. A packet behind another one of its interface
// costs nothing but its copy, whatever the window holds.
type reorder struct {
	heap   []*Interface // whose queues are not empty, the earliest first
	held   int          // packets in all queues
	slots  []slot
	free   []int32 // slots that nobody uses
	lent   int32   // the slot whose data take returned last; noSlot: none
	bytes  int     // capacity of all slots
	newest int64   // ns
	seq    uint64
	ended  error // of the file behind what is held
}

// queue is an interface's part of a reorder: its packets in the order of the file.
type queue struct {
	seen        bool
	latest      int64 // ns, the latest time yet
	first, last int32 // slots
	key         int64 // ns: the first packet's place in time, see slot
	seq         uint64
}

const noSlot = -1

// slot is a packet's memory.
type slot struct {
	rec  Record
	buf  []byte
	key  int64 // ns: the latest time yet on its interface, which keeps that in order
	seq  uint64
	next int32 // of the same interface
}

func newReorder() *reorder { return &reorder{lent: noSlot} }

func (q *queue) before(o *queue) bool { return q.key < o.key || q.key == o.key && q.seq < o.seq }

// full reports whether the earliest packet's time has come.
func (r *reorder) full() bool {
	return r.held > 0 && (r.ended != nil || r.held >= reorderMost || r.bytes >= reorderBytes || r.newest-r.heap[0].queue.key > reorderTime)
}

// put takes a packet in, with a copy of its data.
func (r *reorder) put(rec *Record) {
	q := &rec.Interface.queue
	empty := !q.seen || q.first == noSlot
	if !q.seen || rec.Time > q.latest {
		q.seen, q.latest = true, rec.Time
	}
	r.newest = max(r.newest, q.latest)
	r.seq++
	r.held++
	n := r.slot(len(rec.Data))
	s := &r.slots[n]
	s.rec, s.key, s.seq, s.next = *rec, q.latest, r.seq, noSlot
	s.rec.Data = s.buf[:copy(s.buf, rec.Data)]
	if !empty {
		r.slots[q.last].next, q.last = n, n
		return
	}
	q.first, q.last, q.key, q.seq = n, n, s.key, s.seq
	h := append(r.heap, rec.Interface)
	for at := len(h) - 1; at > 0; {
		up := (at - 1) / 2
		if !h[at].queue.before(&h[up].queue) {
			break
		}
		h[at], h[up] = h[up], h[at]
		at = up
	}
	r.heap = h
}

// slot returns one that has room for n bytes.
func (r *reorder) slot(n int) int32 {
	var i int32
	if last := len(r.free) - 1; last >= 0 {
		i, r.free = r.free[last], r.free[:last]
	} else {
		i = int32(len(r.slots))
		r.slots = append(r.slots, slot{})
	}
	if s := &r.slots[i]; len(s.buf) < n {
		size := 128
		for size < n {
			size *= 2
		}
		r.bytes += size - len(s.buf)
		s.buf = make([]byte, size)
	}
	return i
}

// take fills rec with the earliest packet, whose data is valid until the next call.
func (r *reorder) take(rec *Record) {
	if i := r.lent; i >= 0 {
		if s := &r.slots[i]; r.bytes >= reorderBytes {
			r.bytes -= len(s.buf)
			s.buf = nil
		}
		r.free = append(r.free, i)
	}
	q := &r.heap[0].queue
	r.lent = q.first
	s := &r.slots[r.lent]
	*rec = s.rec
	s.rec.Comments = nil
	r.held--
	if q.first = s.next; q.first != noSlot {
		next := &r.slots[q.first]
		q.key, q.seq = next.key, next.seq
	} else {
		last := len(r.heap) - 1
		r.heap[0] = r.heap[last]
		r.heap = r.heap[:last]
	}
	r.sift()
}

// sift gives the queue at the heap's top its place.
func (r *reorder) sift() {
	h := r.heap
	for at := 0; ; {
		least := at
		for _, down := range [2]int{2*at + 1, 2*at + 2} {
			if down < len(h) && h[down].queue.before(&h[least].queue) {
				least = down
			}
		}
		if least == at {
			return
		}
		h[at], h[least] = h[least], h[at]
		at = least
	}
}
