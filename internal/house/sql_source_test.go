package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A statement is a text of SQL, or a part of one, and the function that sends it.
type statement struct{ in, text string }

// A function of a package that is read.
type function struct {
	name, bare string // name has the receiver's type in front
	params     map[string]int
	body       ast.Node
	returning  bool // what it returns is being looked at
}

// source is a package as far as its texts go.
type source struct {
	values    map[string]ast.Expr // constants and variables of the package
	functions []*function
	byName    map[string]*function
}

func readSource(t *testing.T, dir string) *source {
	t.Helper()
	s := &source{values: map[string]ast.Expr{}, byName: map[string]*function{}}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %d files, error %v", dir, len(files), err)
	}
	set := token.NewFileSet()
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(set, file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range tree.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				s.addFunction(d)
			case *ast.GenDecl:
				s.addValues(d)
			}
		}
	}
	return s
}

func (s *source) addFunction(d *ast.FuncDecl) {
	f := &function{name: d.Name.Name, bare: d.Name.Name, params: map[string]int{}, body: d}
	if d.Recv != nil {
		of := d.Recv.List[0].Type
		if star, ok := of.(*ast.StarExpr); ok {
			of = star.X
		}
		if id, ok := of.(*ast.Ident); ok {
			f.name = id.Name + "." + f.bare
		}
	}
	for _, p := range d.Type.Params.List {
		for _, n := range p.Names {
			f.params[n.Name] = len(f.params)
		}
	}
	s.functions = append(s.functions, f)
	s.byName[f.bare] = f
}

func (s *source) addValues(d *ast.GenDecl) {
	for _, spec := range d.Specs {
		v, ok := spec.(*ast.ValueSpec)
		if !ok {
			continue
		}
		for i, n := range v.Names {
			if i < len(v.Values) {
				s.values[n.Name] = v.Values[i]
			}
		}
	}
}

var statementWord = regexp.MustCompile(`\b(SELECT|UPDATE|DELETE|FROM|JOIN)\b`)

// statements are all texts in functions, and those of variables that are whole
// statements. What comes in as a parameter is filled in from every call.
func (s *source) statements() (out []statement) {
	for name, value := range s.values {
		if text := s.text(value, &function{}, 0); regexp.MustCompile(`^\s*(SELECT|UPDATE|DELETE|WITH)\b`).MatchString(text) && regexp.MustCompile(`\b(FROM|SET)\b`).MatchString(text) {
			out = append(out, statement{name, text})
		}
	}
	for _, f := range s.functions {
		for _, e := range texts(f.body) {
			if text := s.text(e, f, e.Pos()); statementWord.MatchString(text) {
				out = append(out, s.filled(f, text, 6)...)
			}
		}
	}
	return out
}

var hole = regexp.MustCompile("\x00(\\w+)\x00")

// filled is a text with every call's arguments in the place of parameters.
func (s *source) filled(f *function, text string, depth int) (out []statement) {
	if hole.MatchString(text) && depth > 0 {
		for _, caller := range s.functions {
			ast.Inspect(caller.body, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || calledName(call) != f.bare || caller == f {
					return true
				}
				given := hole.ReplaceAllStringFunc(text, func(h string) string {
					if i := f.params[strings.Trim(h, "\x00")]; i < len(call.Args) {
						return s.text(call.Args[i], caller, call.Pos())
					}
					return ""
				})
				out = append(out, s.filled(caller, given, depth-1)...)
				return true
			})
		}
	}
	if len(out) == 0 {
		out = append(out, statement{f.name, hole.ReplaceAllString(text, "?")})
	}
	return out
}

func calledName(call *ast.CallExpr) string {
	switch fun := call.Fun.(type) {
	case *ast.Ident:
		return fun.Name
	case *ast.SelectorExpr:
		return fun.Sel.Name
	}
	return ""
}

// texts are the outermost expressions of a function that may be texts: what is put
// together, formatted, or handed on by name.
func texts(body ast.Node) (out []ast.Expr) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if n.Op == token.ADD {
				out = append(out, n)
				return false
			}
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				out = append(out, n)
			}
		case *ast.CallExpr:
			if name := calledName(n); name == "Sprintf" {
				out = append(out, n)
				return false
			}
			for _, a := range n.Args {
				if id, ok := a.(*ast.Ident); ok {
					out = append(out, id)
				}
			}
		}
		return true
	})
	return out
}

var verb = regexp.MustCompile(`%[a-z]`)

// text is what an expression in f comes to at a place, as far as the source says it:
// what it does not say is a question mark.
func (s *source) text(e ast.Expr, f *function, at token.Pos) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil {
			return text
		}
	case *ast.BinaryExpr:
		return s.text(e.X, f, at) + s.text(e.Y, f, at)
	case *ast.ParenExpr:
		return s.text(e.X, f, at)
	case *ast.UnaryExpr:
		return s.text(e.X, f, at)
	case *ast.KeyValueExpr:
		return s.text(e.Value, f, at)
	case *ast.CompositeLit:
		return s.all(e.Elts, f, at)
	case *ast.Ident:
		if _, ok := f.params[e.Name]; ok {
			return "\x00" + e.Name + "\x00"
		}
		if text, ok := s.local(e.Name, f, at); ok {
			return text
		}
		if v, ok := s.values[e.Name]; ok {
			return s.text(v, &function{}, 0)
		}
	case *ast.CallExpr:
		return s.called(e, f, at)
	}
	return "?"
}

// all are texts of a list, as conditions are joined.
func (s *source) all(list []ast.Expr, f *function, at token.Pos) string {
	var parts []string
	for _, e := range list {
		parts = append(parts, s.text(e, f, at))
	}
	return strings.Join(parts, " AND ")
}

func (s *source) called(call *ast.CallExpr, f *function, at token.Pos) string {
	name := calledName(call)
	of, method := call.Fun.(*ast.SelectorExpr)
	switch {
	case name == "Sprintf" && len(call.Args) > 0:
		rest := call.Args[1:]
		return verb.ReplaceAllStringFunc(s.text(call.Args[0], f, at), func(string) string {
			if len(rest) == 0 {
				return "?"
			}
			arg := rest[0]
			rest = rest[1:]
			return s.text(arg, f, at)
		})
	case (name == "Replace" || name == "Join") && len(call.Args) > 0:
		return s.text(call.Args[0], f, at)
	case name == "append":
		return s.all(call.Args, f, at)
	case name == "String" && method:
		return s.text(of.X, f, at)
	case name == "ForUpdate":
		return " FOR UPDATE"
	}
	return s.returned(name)
}

// returned is what a function of the package returns at its end, first.
func (s *source) returned(name string) string {
	f := s.byName[name]
	if f == nil || f.returning {
		return "?"
	}
	f.returning = true
	defer func() { f.returning = false }()
	d, ok := f.body.(*ast.FuncDecl)
	if !ok || d.Body == nil || len(d.Body.List) == 0 {
		return "?"
	}
	last, ok := d.Body.List[len(d.Body.List)-1].(*ast.ReturnStmt)
	if !ok || len(last.Results) == 0 {
		return "?"
	}
	return hole.ReplaceAllString(s.text(last.Results[0], f, last.Pos()), "?")
}

// local is what a variable of a function holds at a place. What is put into it where
// the function may not come by does not count.
func (s *source) local(name string, f *function, at token.Pos) (text string, known bool) {
	if f.body == nil {
		return "", false
	}
	is := func(e ast.Expr) bool { id, ok := e.(*ast.Ident); return ok && id.Name == name }
	ast.Inspect(f.body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BlockStmt, *ast.CaseClause:
			return n.Pos() <= at && at <= n.End()
		case *ast.AssignStmt:
			for i, l := range n.Lhs {
				if !is(l) || n.End() > at || i >= len(n.Rhs) {
					continue
				}
				if value := s.text(n.Rhs[i], f, n.Pos()); n.Tok == token.ADD_ASSIGN {
					text += value
				} else {
					text = value
				}
				known = true
			}
		case *ast.ValueSpec:
			for i, l := range n.Names {
				if l.Name == name && n.End() <= at && i < len(n.Values) {
					text, known = s.text(n.Values[i], f, n.Pos()), true
				}
			}
		case *ast.CallExpr:
			if of, ok := n.Fun.(*ast.SelectorExpr); ok && is(of.X) && of.Sel.Name == "add" && n.End() <= at && len(n.Args) > 0 {
				if text != "" {
					text += " AND "
				}
				text, known = text+s.text(n.Args[0], f, n.Pos()), true
			}
		}
		return true
	})
	return text, known
}
