package dataplane

import "pktdirector/packet"

// LinkInfo is what the director needs to know of a link.
type LinkInfo struct {
	Name   string     // the interface's name, for people
	Index  int        // the interface's index on the host; 0 where there is none
	MAC    packet.MAC // the link's own hardware address; zero on layer 3
	MTU    int        // largest network-layer packet in bytes
	VLAN   uint16     // only frames of this VLAN id belong to the link; 0: all, and a tag is kept
	Layer3 bool       // a link without hardware addresses (a TUN device)
	Host   bool       // what leaves by it, the host takes for its own sockets; nothing is read from it
}

// Link is one interface that the director reads packets from and writes
// packets to. A link keeps link-layer headers and offloads to itself: packets
// begin at the network layer.
type Link interface {
	// Info describes the link at present; an MTU or MAC may change.
	Info() LinkInfo
	// Readers returns the link's receive queues. Each is used by one
	// goroutine.
	Readers() []Reader
	// NewWriter returns a way to send, for use by one goroutine.
	NewWriter() Writer
	// Stats reads the link's own counters.
	Stats() LinkStats
	// Close ends every Read with net.ErrClosed and releases what the link
	// holds, once the readers have returned.
	Close() error
}

// Reader is one receive queue.
type Reader interface {
	// Read waits for packets and points the first n of batch at them. They
	// stay valid until the next Read on this queue. When nothing comes it
	// returns 0 and no error after at most 50 ms, so that timers go on. It
	// returns net.ErrClosed after Close.
	Read(batch []*packet.Packet) (n int, err error)
}

// Writer sends packets.
type Writer interface {
	// Write sends the packets in order, marks each with Sent, and counts
	// those the link did not take. A super-frame or an unfinished checksum
	// that the interface cannot carry is segmented or finished first. The
	// buffers belong to the caller again on return; their contents in front
	// of Start, and the packet's own header fields that segmentation
	// touches, may have changed.
	Write(batch []*packet.Packet)
}

// LinkStats are a link's counters since it was opened.
type LinkStats struct {
	RxPackets uint64 `json:"rx_packets"`
	RxBytes   uint64 `json:"rx_bytes"`
	TxPackets uint64 `json:"tx_packets"` // frames handed to the kernel
	TxBytes   uint64 `json:"tx_bytes"`
	// RxRingDrops are frames the kernel dropped because the ring was full.
	RxRingDrops uint64 `json:"rx_ring_drops"`
	// RxTruncated are frames the ring could not hold whole.
	RxTruncated uint64 `json:"rx_truncated"`
	// RxOtherVLAN are frames of a VLAN that is not the link's.
	RxOtherVLAN uint64 `json:"rx_other_vlan"`
	// TxNoBuffer are frames the kernel had no room for (ENOBUFS).
	TxNoBuffer uint64 `json:"tx_no_buffer"`
	// TxTooBig are frames larger than the interface takes (EMSGSIZE).
	TxTooBig uint64 `json:"tx_too_big"`
	// TxDown are frames that met an interface that was down or gone.
	TxDown uint64 `json:"tx_down"`
	// TxError are frames refused for another reason.
	TxError uint64 `json:"tx_error"`
	// Segmented are super-frames cut into segments in software; Summed are
	// checksums finished in software.
	Segmented uint64 `json:"segmented"`
	Summed    uint64 `json:"summed"`
}
