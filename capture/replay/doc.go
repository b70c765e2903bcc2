// Package replay takes a capture through the engine in the capture's own time: what
// would a director with this configuration have done with these packets? It needs no
// network: links are named as in the configuration, every route and neighbour
// resolves, and servers answer what they answered in the capture.
//
// What comes from clients is played. Of a capture that was taken on a director, what
// that director sent is left out; its servers' replies, and where they were not
// captured those that the clients got, are played as those of the server that the
// engine picked. Read engine.go first.
package replay
