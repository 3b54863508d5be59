// Package components installs what platform teams want in a cluster, each as one
// Helm release: a catalogue of pinned charts, and the engine that fetches,
// checks, installs, upgrades, rolls back and removes them.
//
// # Catalogue
//
// One file a component under catalogue/: where its chart comes from, which
// version, what it needs of the cloud, and a few hardened default values. Users
// add entries of their own ([Catalogue.With]) and point all of it at a mirror
// ([Options].Mirror).
//
// # Engine
//
// [Engine.Resolve] does everything that can be known before anything happens:
// the chart is fetched, the values are checked against its schema, the templates
// are rendered, and the release's size is measured.
//
// [Engine.Release] is a release as a [pipeline.Resource], so that intents, rows
// of the inventory and crash safety come from the pipeline's protocol. Helm
// stores a release in Secrets of its namespace; the owner mark is a label of
// them. Helm's own waits are not used: what is ready, and what is gone, is read
// from the objects themselves.
package components
