package host

// NewUnownedGuard is NewGuard on a kernel that knows no table ownership.
func NewUnownedGuard() (*Guard, error) { return newGuard(false) }

// RemoveTables deletes what a killed director left in nftables.
var RemoveTables = removeTables
