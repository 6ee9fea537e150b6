"""Patterns of `match`."""

import ast

from .bindings import Bindings
from .classes import find_member
from .domain import Class, External, Scope, Site, Unknown, Value
from .instances import is_instance
from .literals import is_open, literal, truth
from .operators import compare


def both(results: "list[bool | None]") -> bool | None:
    """Whether all hold."""
    return False if False in results else None if None in results else True


class Patterns(Bindings):
    """Decides which case of a `match` is taken."""

    def fits(self, pattern: ast.pattern, subject: Value, scope: Scope) -> bool | None:
        """Whether a pattern fits; its names are bound as far as it does. None: not decidable."""
        if isinstance(pattern, ast.MatchAs):
            fits = pattern.pattern is None or self.fits(pattern.pattern, subject, scope)
            if pattern.name is not None and fits is not False:
                scope.names[pattern.name] = subject
            return fits
        if isinstance(pattern, ast.MatchOr):
            unsure = False
            for item in pattern.patterns:
                fits = self.fits(item, subject, scope)
                if fits:
                    return None if unsure else True
                unsure |= fits is None
            return None if unsure else False
        if isinstance(pattern, ast.MatchValue):
            value = self.evaluate(pattern.value, scope)
            return truth(compare(ast.Eq(), subject, value, pattern, scope))
        if isinstance(pattern, ast.MatchSingleton):
            return truth(compare(ast.Is(), subject, pattern.value, pattern, scope))
        if isinstance(pattern, ast.MatchSequence):
            return self.fits_sequence(pattern, subject, scope)
        if isinstance(pattern, ast.MatchMapping):
            return self.fits_mapping(pattern, subject, scope)
        if isinstance(pattern, ast.MatchClass):
            return self.fits_class(pattern, subject, scope)
        return None

    def unknown(self, pattern: ast.pattern, scope: Scope) -> None:
        """Bind the names of a pattern whose parts are not decidable."""
        for inner in ast.walk(pattern):
            name = getattr(inner, "name", None) or getattr(inner, "rest", None)
            if isinstance(inner, ast.pattern) and isinstance(name, str):
                scope.names[name] = Unknown(site=Site(scope.module, inner))

    def fits_sequence(
        self, pattern: ast.MatchSequence, subject: Value, scope: Scope
    ) -> bool | None:
        if not isinstance(subject, (list, tuple)) or is_open(subject):
            self.unknown(pattern, scope)
            return False if literal(subject) and not isinstance(subject, (list, tuple)) else None
        wanted, count = pattern.patterns, len(subject)
        stars = [i for i, item in enumerate(wanted) if isinstance(item, ast.MatchStar)]
        if count != len(wanted) if not stars else count < len(wanted) - 1:
            return False
        results = []
        for index, item in enumerate(wanted):
            if isinstance(item, ast.MatchStar):
                rest = list(subject[index : count - (len(wanted) - 1 - index)])
                if item.name is not None:
                    scope.names[item.name] = rest
                continue
            behind = bool(stars) and index > stars[0]
            part = subject[index - len(wanted)] if behind else subject[index]
            results.append(self.fits(item, part, scope))
            if results[-1] is False:
                return False
        return both(results)

    def fits_mapping(self, pattern: ast.MatchMapping, subject: Value, scope: Scope) -> bool | None:
        if not isinstance(subject, dict) or is_open(subject):
            self.unknown(pattern, scope)
            return False if literal(subject) and not isinstance(subject, dict) else None
        rest = dict(subject)
        results = []
        for key_node, inner in zip(pattern.keys, pattern.patterns, strict=True):
            key = self.evaluate(key_node, scope)
            if not literal(key):
                self.unknown(pattern, scope)
                return None
            if key not in rest:
                return False
            results.append(self.fits(inner, rest.pop(key), scope))
            if results[-1] is False:
                return False
        if pattern.rest is not None:
            scope.names[pattern.rest] = rest
        return both(results)

    def fits_class(self, pattern: ast.MatchClass, subject: Value, scope: Scope) -> bool | None:
        cls = self.evaluate(pattern.cls, scope)
        known = is_instance(subject, cls)
        if not known:
            self.unknown(pattern, scope)
            return known
        results: list[bool | None] = []
        site = Site(scope.module, pattern)
        if pattern.patterns and isinstance(cls, External):
            results.append(self.fits(pattern.patterns[0], subject, scope))
        elif pattern.patterns:
            names = self.match_args(cls)
            if names is None or len(names) < len(pattern.patterns):
                self.unknown(pattern, scope)
                return None
            for name, inner in zip(names, pattern.patterns, strict=False):
                results.append(self.fits(inner, self.attribute(subject, name, site), scope))
        for name, inner in zip(pattern.kwd_attrs, pattern.kwd_patterns, strict=True):
            results.append(self.fits(inner, self.attribute(subject, name, site), scope))
        return both(results)

    def match_args(self, cls: Value) -> list[str] | None:
        """The fields that positional patterns of a dataclass stand for."""
        if not isinstance(cls, Class) or find_member(cls, "__match_args__") or cls.kw_only:
            return None
        return list(cls.annotations) if cls.is_dataclass and len(cls.bases) == 0 else None
