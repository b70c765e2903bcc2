// Package systemd tells the service manager about the director: that it is ready,
// reloads, stops or is another process now, what it does in a line of text, and,
// while it is seen to be alive, that it is. Where no service manager asked for it,
// every call does nothing.
package systemd
