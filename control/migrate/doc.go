// Package migrate takes over what other directors were told: files that "ipvsadm -S"
// wrote, and the virtual servers of keepalived.conf. It makes a configuration of
// package control of them and tells, line by line, what that could not take over.
//
// It reads no file by itself: what a file includes, its caller finds. Start reading at
// migrate.go.
package migrate
