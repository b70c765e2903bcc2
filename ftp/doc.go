// Package ftp is what masquerading needs to know of the file transfer protocol
// (RFC 959, RFC 2428): which lines of a control connection announce a data
// connection, and how sequence numbers and bytes move when an announced
// address is replaced by one of another length. It holds no connections and
// decides nothing. Read message.go first, then edits.go.
package ftp
