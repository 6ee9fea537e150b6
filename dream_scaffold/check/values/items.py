"""Changes of what containers hold, and of values in place."""

import ast

from .calls import Calls
from .classes import remove
from .displays import is_key
from .domain import Scope, Site, Unknown, Value
from .literals import is_open, spoil
from .operators import LONGEST, operate, undecided
from .streams import Stream, iterate


class Items(Calls):
    """Carries out `x[...] = y`, `del` and augmented assignments."""

    declared: dict[Scope, dict[str, Scope]]

    def assign_item(self, target: ast.Subscript, value: Value, scope: Scope) -> None:
        owner, key = self.evaluate(target.value, scope), self.evaluate(target.slice, scope)
        site = Site(scope.module, target)
        if not isinstance(owner, (list, dict)) or is_open(owner):
            return
        if isinstance(key, slice) and isinstance(value, (Stream, tuple)):
            items = iterate(value)
            value = Unknown(site=site) if items is None else items
        is_fit = isinstance(owner, dict) or isinstance(key, (int, slice))
        if not is_fit or not (isinstance(key, slice) or is_key(key)):
            spoil(owner, key if isinstance(key, Unknown) else Unknown(site=site))
            return
        try:
            owner[key] = value  # type: ignore[index,call-overload]
        except (LookupError, TypeError, ValueError) as error:
            if isinstance(key, slice):
                spoil(owner, Unknown(site=site))
            self.failed(type(error).__name__, site, "raises")

    def delete(self, node: ast.Delete, scope: Scope) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.declared.get(scope, {}).get(target.id, scope).names.pop(target.id, None)
            elif isinstance(target, ast.Attribute):
                owner = self.evaluate(target.value, scope)
                remove(owner, target.attr)
            elif isinstance(target, ast.Subscript):
                self.delete_item(target, scope)

    def delete_item(self, target: ast.Subscript, scope: Scope) -> None:
        owner, key = self.evaluate(target.value, scope), self.evaluate(target.slice, scope)
        site = Site(scope.module, target)
        if not isinstance(owner, (list, dict)) or is_open(owner):
            return
        if not (isinstance(key, slice) or is_key(key)):
            spoil(owner, Unknown(site=site))
            return
        try:
            del owner[key]  # type: ignore[arg-type]
        except (LookupError, TypeError) as error:
            self.failed(type(error).__name__, site, "raises")

    def augmented(self, node: ast.AugAssign, scope: Scope) -> None:
        where = scope
        if isinstance(node.target, ast.Name) and scope in self.declared:
            where = self.declared[scope].get(node.target.id, scope)
        current = self.evaluate(node.target, where)
        change = self.evaluate(node.value, scope)
        why = change if isinstance(change, Unknown) else undecided(node, scope)
        # In place: whoever else holds the container sees it.
        if isinstance(current, list) and isinstance(node.op, ast.Add):
            items = iterate(change)
            if items is None or is_open(current) or len(current) + len(items) > LONGEST:
                spoil(current, why)
            else:
                current += items
        elif isinstance(current, (dict, set)) and isinstance(node.op, ast.BitOr):
            if isinstance(change, type(current)) and not is_open(change) and not is_open(current):
                current |= change  # type: ignore[operator]
            else:
                spoil(current, why)
        else:
            value = operate(node.op, current, change, node, scope)
            self.bind_target(node.target, value, scope)
