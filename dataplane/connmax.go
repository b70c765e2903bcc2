package dataplane

// TableStatus is how full the tables of connections and templates are.
type TableStatus struct {
	Connections, Templates int // at present
	// Max is the most that each of the two may hold.
	Max int
	// Evicted counts the half-open and finished connections, and templates of
	// clients that never proved to be real, that had to make way for new ones.
	Evicted uint64
}

// Table tells how full the tables of connections and templates are.
func (d *Director) Table() TableStatus {
	return TableStatus{
		Connections: d.table.Len(), Templates: d.templates.Len(), Max: d.table.Max(),
		Evicted: d.table.Evicted() + d.templates.Evicted(),
	}
}

func (d *Director) limitTables(n int) {
	d.table.SetMax(n)
	d.templates.SetMax(n)
}

// TableMemory returns the bytes that the tables of connections and of templates
// take at present. It takes the lock of each of their shards for a moment.
func (d *Director) TableMemory() (connections, templates uint64) {
	return d.table.Memory(), d.templates.Memory()
}
