package job

import "testing"

func TestLooksLikeID(t *testing.T) {
	for _, prefix := range []string{"job", "team", "ca", "tok", "usr"} {
		if id := NewID(prefix); !LooksLikeID(id) {
			t.Errorf("%s is not known as an ID", id)
		}
	}
	for text, want := range map[string]bool{
		"TEAM_06H2YQ7361V3HFCJVBQM9C571M":        true,
		"x_06h2yq7361v3hfcjvbqm9c571m":           true,
		"team-06h2yq7361v3hfcjvbqm9c571m":        false,
		"06h2yq7361v3hfcjvbqm9c571m":             false,
		"team_06h2yq7361v3hfcjvbqm9c571":         false,
		"team_06h2yq7361v3hfcjvbqm9c571m0":       false,
		"team_06h2yq7361v3hfcjvbqm9c571u":        false, // u is not in the alphabet
		"my_team_06h2yq7361v3hfcjvbqm9c571m":     false,
		"shop":                                   false,
		"":                                       false,
		"team_06h2yq7361v3hfcjvbqm9c571m\nteam_": false,
	} {
		if got := LooksLikeID(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
