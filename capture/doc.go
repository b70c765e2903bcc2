// Package capture reads capture files of every kind that people send, pcap and
// pcapng, compressed or not, several of one capture at once, in constant memory,
// and writes annotated pcapng files.
//
// It reads files by itself. gopacket's pcapgo, which tests hold it against where
// both can read, falls short of what files of strangers need:
//   - a pcap record longer than the file's snaplen, or one whose original length
//     is below its captured one, is an error, and what follows is read from the
//     middle of it;
//   - link types have 8 bits there: Linux cooked v2, 276, becomes 20;
//   - microseconds of 4,294,968 and more overflow; versions before 2.4 are refused;
//   - times of pcapng interfaces in powers of two come out wrong (it divides 10^9
//     by 2^n in whole numbers: half a second of 2^-20 s becomes 499,646,464 ns),
//     exponents above 63 divide by zero;
//   - options of packets, among them comments, directions and numbers, are
//     thrown away;
//   - lengths in a file are believed, and memory of that size taken;
//   - zstd is not known, and gzip only for pcap.
//
// TestWherePcapgoDiffers shows these with files.
//
// Read record.go first, then reader.go. The package does not know what packets
// mean above the link layer.
package capture
