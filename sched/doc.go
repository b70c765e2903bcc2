// Package sched chooses a destination for a new connection. One scheduler
// stands in one file, its algorithm explained above the code; Names lists them.
//
// Every scheduler walks a service's destinations newest first, as the kernel
// does: a server added last stands first, ties go to the one that stands
// first, and an edit of a weight does not move a server.
package sched
