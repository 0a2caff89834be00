// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"satld/internal/fakefreebsd/world"
)

// Properties of datasets: zfs set, get and list.

func (p pool) set(a zfsArgs) error {
	if len(a.names) < 2 {
		return errors.New("missing dataset name(s)")
	}
	name := a.names[len(a.names)-1]
	d := p.w.Dataset(name)
	if d == nil {
		return cannot("open", name, gone)
	}
	for _, kv := range a.names[:len(a.names)-1] {
		k, v, _ := strings.Cut(kv, "=")
		if d.Props == nil {
			d.Props = map[string]string{}
		}
		d.Props[k] = v
	}
	return nil
}

func (p pool) get(a zfsArgs) error {
	if len(a.names) < 1 {
		return errors.New("missing property argument")
	}
	names := a.names[1:]
	if len(names) == 0 {
		for _, d := range p.w.Datasets {
			names = append(names, d.Name)
		}
	}
	if a.columns == nil {
		a.columns = []string{"name", "property", "value", "source"}
	}
	for _, name := range names {
		d := p.w.Dataset(name)
		if d == nil {
			return cannot("open", name, gone)
		}
		for prop := range strings.SplitSeq(a.names[0], ",") {
			var row []string
			for _, column := range a.columns {
				row = append(row, map[string]string{"name": name, "property": prop, "value": p.property(d, prop), "source": "-"}[column])
			}
			p.printf("%s\n", strings.Join(row, "\t"))
		}
	}
	return nil
}

func (p pool) list(a zfsArgs) error {
	if a.columns == nil {
		a.columns = []string{"name", "used", "avail", "refer", "mountpoint"}
	}
	kinds := strings.Split(a.kinds, ",")
	want := func(d *world.Dataset) bool {
		kind := "filesystem"
		if d.Snapshot() {
			kind = "snapshot"
		}
		return slices.Contains(kinds, kind) || slices.Contains(kinds, "all") || kind == "snapshot" && slices.Contains(kinds, "snap")
	}
	var rows []*world.Dataset
	for _, name := range a.names {
		if p.w.Dataset(name) == nil {
			return cannot("open", name, gone)
		}
	}
	for _, d := range p.w.Datasets {
		in := len(a.names) == 0
		for _, name := range a.names {
			deep := a.flags['r'] && (strings.HasPrefix(d.Name, name+"/") || strings.HasPrefix(d.Name, name+"@"))
			in = in || d.Name == name || deep
		}
		// A snapshot that is named is shown whatever -t says.
		if in && (want(d) || d.Snapshot() && slices.Contains(a.names, d.Name)) {
			rows = append(rows, d)
		}
	}
	slices.SortStableFunc(rows, func(x, y *world.Dataset) int { return strings.Compare(order(x.Name), order(y.Name)) })
	if !a.flags['H'] {
		p.printf("%s\n", strings.ToUpper(strings.Join(a.columns, "  ")))
	}
	for _, d := range rows {
		var row []string
		for _, column := range a.columns {
			row = append(row, p.property(d, column))
		}
		p.printf("%s\n", strings.Join(row, "\t"))
	}
	return nil
}

// order has snapshots right behind what they are of, before what is below.
func order(name string) string {
	return strings.NewReplacer("@", "\x01", "/", "\x02").Replace(name)
}

// property is what zfs get and zfs list show.
func (p pool) property(d *world.Dataset, name string) string {
	switch name {
	case "name":
		return d.Name
	case "origin":
		return dash(d.Origin)
	case "type":
		if d.Snapshot() {
			return "snapshot"
		}
		return "filesystem"
	case "mounted":
		if d.Snapshot() {
			return "-"
		}
		if d.Mounted != "" {
			return "yes"
		}
		return "no"
	case "used", "refer", "referenced", "usedds":
		return strconv.FormatInt(size(p.files(d)), 10)
	case "avail", "available":
		return strconv.Itoa(10 << 30)
	case "defer_destroy":
		if d.Deferred {
			return "on"
		}
		return "off"
	case "canmount":
		if v, ok := d.Props[name]; ok { // not inherited
			return v
		}
		return "on"
	}
	base, _, snapshot := strings.Cut(d.Name, "@")
	if snapshot && name == "mountpoint" {
		return "-"
	}
	for at := base; at != "." && at != ""; at = filepath.Dir(at) {
		if up := p.w.Dataset(at); up != nil {
			if v, ok := up.Props[name]; ok {
				if name == "mountpoint" && v != "none" && v != "legacy" {
					return filepath.Join(v, strings.TrimPrefix(base, at))
				}
				return v
			}
		}
	}
	defaults := map[string]string{"mountpoint": "/" + base, "compression": "on", "exec": "on", "setuid": "on", "readonly": "off"}
	return dash(defaults[name]) // a user property that nobody set is a dash
}

func dash(v string) string {
	if v == "" {
		return "-"
	}
	return v
}

func size(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil
	})
	return n
}
