// SPDX-License-Identifier: BSD-2-Clause

//go:build !linux

package fakefreebsd

func (f *Fake) remove(string) {}
