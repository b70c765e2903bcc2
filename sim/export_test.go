package sim

// SameText is sameText.
func SameText(args, want, got string) bool { return sameText(args, want, got) }

// Steps is how many steps the player's time has made.
func (p *Player) Steps() int { return p.steps }

// Masked is masked.
func Masked(in, frame string) string { return masked(in, frame) }
