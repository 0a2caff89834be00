// SPDX-License-Identifier: BSD-2-Clause

package network

import "maps"

var _ journal = (*Manager)(nil)

func (m *Manager) begin(name string, u unfinished) error {
	defer m.change()()
	m.state.Making[name] = u
	if err := m.save(); err != nil {
		delete(m.state.Making, name)
		return err
	}
	return nil
}

func (m *Manager) end(name string) error {
	defer m.change()()
	u, open := m.state.Making[name]
	if !open {
		return nil
	}
	delete(m.state.Making, name)
	if err := m.save(); err != nil {
		m.state.Making[name] = u
		return err
	}
	return nil
}

func (m *Manager) pending() map[string]unfinished {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.state.Making)
}
