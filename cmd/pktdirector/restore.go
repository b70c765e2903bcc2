package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"pktdirector/control"
	"pktdirector/dataplane"
	"pktdirector/image"
	"pktdirector/lvs"
)

// carried is what an image holds beside the engine's state.
type carried struct {
	taken moment // of the engine's time in the image
	file  string // the configuration file's path
	text  string // of what it said when it was loaded last
}

func (k *carried) carry(x *image.Codec) {
	k.taken.carry(x)
	x.Text(&k.file)
	x.Text(&k.text)
}

// carriedBy returns what an image of a director holds that loaded c from file.
func carriedBy(file string, c *control.Config, taken moment) carried {
	var text bytes.Buffer
	_ = c.Print(&text) // a buffer takes all
	return carried{taken: taken, file: file, text: text.String()}
}

// appendPart appends it to an image, as part n.
func (k *carried) appendPart(b []byte, n int) []byte {
	return image.AppendPart(b, dataplane.ImageOfCaller, n, func(b []byte) []byte {
		x := image.Writing(b)
		k.carry(x)
		return x.Bytes()
	})
}

// carriedIn reads what an image holds beside the engine's state.
func carriedIn(parts []image.Part) (k carried, err error) {
	at := slices.IndexFunc(parts, func(p image.Part) bool { return p.Kind == dataplane.ImageOfCaller })
	if at < 0 {
		return k, fmt.Errorf("the image does not tell of which configuration it is")
	}
	if err := parts[at].Check(); err != nil {
		return k, err
	}
	x := image.Reading(parts[at].Payload)
	k.carry(x)
	return k, x.End()
}

// begun is an engine that is ready to forward.
type begun struct {
	director *dataplane.Director
	zero     time.Time       // the moment of engine time 0
	does     control.Running // what it does, as it was told

	// Of one that was restored:
	passed  time.Duration       // since the image was made
	drift   []control.DriftStep // what was changed by hand, and what became of it
	steps   []control.Step      // that the configuration made it do otherwise
	leftOut int                 // connections whose place was another's
	remarks []string            // what else is worth a line in the log

	restored *control.Restored // for who asks; nil: it was not
}

// begin returns an engine that does what the configuration says.
func begin(c *control.Config, connMax int) (*begun, error) {
	b := &begun{director: newDirector(rand.Uint64(), connMax), zero: time.Now(), does: c.Asked(defaults())}
	return b, configure(b.director, c)
}

// unusable is an error that the image is to blame for, not the configuration.
type unusable struct{ error }

func (u unusable) Unwrap() error { return u.error }

// restore returns an engine that goes on where the one was whose image it is: with its
// connections, counters and rules, aged by the time that has passed. Then it does as a
// running director does: c, if it says otherwise than the file that the image's director
// had loaded, is a reload, which treats what was changed by hand as c says; if it says
// the same, all stays as it was. An unusable image is refused as a whole.
func restore(parts []image.Part, c *control.Config, connMax int) (*begun, error) {
	k, err := carriedIn(parts)
	if err != nil {
		return nil, unusable{err}
	}
	was, err := control.Parse("the image's configuration", []byte(k.text))
	if err != nil {
		return nil, unusable{err}
	}
	r, err := dataplane.Restore(parts, func(seed uint64) dataplane.Options { return options(seed, connMax) }, inParallel)
	if err != nil {
		return nil, unusable{err}
	}
	now := momentNow()
	b := &begun{director: r.Director, leftOut: r.LeftOut}
	var remark string
	if b.passed, remark = k.taken.until(now); remark != "" {
		b.remarks = append(b.remarks, remark)
	}
	r.Age(b.passed)
	b.zero = now.wall.Add(-r.Now)
	to := linksNow(was, c)
	r.Relink(to)

	base, says := was.Asked(defaults()), c.Asked(defaults())
	base.Ruleset.Marks = relinked(base.Ruleset.Marks, to)
	did := runningNow(b.director, base)
	did.Ruleset.Marks = relinked(did.Ruleset.Marks, to)
	policy := c.Drift()
	if len(control.Diff(base, says)) == 0 {
		policy = control.DriftKeep
	}
	b.does = control.Merge(base, says, did, policy)
	g := guarded{Director: b.director, links: planOf(c).Links}
	if err := g.checkAll(b.does.Ruleset); err != nil {
		b.remarks = append(b.remarks, fmt.Sprintf("what was changed by hand does not go together with the configuration, which counts: %v", err))
		b.does = says
	}
	b.drift = control.DriftFates(base, says, did, b.does)
	b.steps = control.Diff(did, b.does)
	if err := become(b.director, b.does); err != nil {
		return nil, err
	}
	return b, nil
}

// linksNow tells where links of one configuration stand in another.
func linksNow(was, is *control.Config) func(int) (int, bool) {
	return func(link int) (int, bool) {
		if link < 0 || link >= len(was.Links) {
			return 0, false
		}
		l := &was.Links[link]
		at := slices.IndexFunc(is.Links, func(n control.Link) bool { return n.Name == l.Name && n.VLAN == l.VLAN })
		return at, at >= 0
	}
}

// relinked returns rules that give marks with the links' present places. A rule about a
// link that is gone is left out: no packet comes in by it.
func relinked(marks []lvs.MarkRule, to func(int) (int, bool)) []lvs.MarkRule {
	var all []lvs.MarkRule
	for _, m := range marks {
		if m.Link >= 0 {
			link, there := to(m.Link)
			if !there {
				continue
			}
			m.Link = link
		}
		all = append(all, m)
	}
	return all
}

// inParallel calls do for 0 to n-1, on all processors, until one fails.
func inParallel(n int, do func(int) error) error {
	var work errgroup.Group
	work.SetLimit(runtime.GOMAXPROCS(0))
	for i := range n {
		work.Go(func() error { return do(i) })
	}
	return work.Wait()
}
