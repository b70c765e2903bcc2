// Package handover is how a running program hands what it holds to a successor: a
// process that it starts, with which it shares a pair of sockets. Over them go messages
// (JSON) with open files, and what is too large for a message in a file of memory.
//
// Start begins a successor, Inherited is the successor's end. What the two say is the
// caller's. Whichever ends, the other notices at once.
package handover
