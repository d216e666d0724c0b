//! The position in a policy document to which a problem belongs.

/// A position, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) line: usize,
    pub(super) column: usize,
}

/// The position that a problem names, or that of the key with which it begins: `a.b[1].c is …`.
pub(super) fn position(document: &str, problem: &str) -> Option<Position> {
    named(problem).or_else(|| of_key(document, problem.split(' ').next()?))
}

/// `… at line 2 column 13`, as for a document that is not JSON. A document that ends too early may
/// have the column 0, behind the last line feed.
fn named(problem: &str) -> Option<Position> {
    let (line, column) = problem.rsplit_once(" at line ")?.1.split_once(" column ")?;
    Some(Position {
        line: line.parse().ok()?,
        column: column.parse().ok().filter(|column| *column > 0)?,
    })
}

/// The position of the last key of a path. Each key is searched behind the one before it, which
/// finds it unless an earlier value has the same name.
fn of_key(document: &str, path: &str) -> Option<Position> {
    let mut at = None;
    let mut from = 0;
    for key in path.split(['.', '[', ']']).filter(|key| !key.is_empty() && !is_number(key)) {
        let quoted = format!("\"{key}\"");
        let Some(found) = document[from..].find(&quoted) else { break };
        at = Some(from + found);
        from += found + quoted.len();
    }
    let before = &document[..at?];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    Some(Position { line, column })
}

fn is_number(key: &str) -> bool {
    key.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_found_at_its_key_or_at_the_line_that_it_names() {
        let document = "{\n  \"preset\": \"x\",\n  \"errorConfigs\": [ { \"retryCount\": -1 } ]\n}";
        for (problem, position) in [
            ("preset is `\"x\"`: must be standard", Some((2, 3))),
            ("errorConfigs[0].retryCount is -1: must be 0", Some((3, 23))),
            ("errorConfigs[0].class is missing", Some((3, 3))),
            ("is not JSON: key must be a string at line 2 column 13", Some((2, 13))),
            ("is not JSON: EOF while parsing a value at line 1 column 0", None),
            ("rules is missing", None),
        ] {
            let position = position.map(|(line, column)| Position { line, column });
            assert_eq!(super::position(document, problem), position, "{problem}");
        }
    }
}
