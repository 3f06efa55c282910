// Package scenario reads scenario files and runs them: a small cluster, what happens to it, and what must be seen
// from outside. It knows the form of the files and the standard topology, and reaches the world only through the
// interfaces in world.go. It never decides anything about Services and names no internals of a proxy.
package scenario
