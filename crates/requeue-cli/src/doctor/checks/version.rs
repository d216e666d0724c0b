//! Whether the checks see the version that Lambda invokes.

use super::super::context::Context;
use super::super::diagnosis::{Checked, Diagnosis, Skip};
use super::super::facts::{Alias, SecondVersion};
use super::super::remedy;

pub(super) const WHY: &str = "The checks read the settings of one version. During a gradual \
                              deployment, an alias invokes two.";

pub(super) fn version(context: &Context<'_>) -> Checked {
    let function = context.function()?;
    let qualifier = function.qualifier.as_ref().ok_or(Skip::NotApplicable)?;
    let Alias { version, second } = match &function.alias {
        None => return Ok(Diagnosis::ok(format!("the version {qualifier}"))),
        Some(alias) => alias.as_ref()?,
    };
    let Some(SecondVersion { version: other, weight, differences }) = second else {
        return Ok(Diagnosis::ok(format!("the alias {qualifier} invokes version {version}")));
    };
    let percent = weight * 100.0;
    let found = format!(
        "the alias {qualifier} invokes version {version}, and version {other} for {percent:.0} % of \
         the batches"
    );
    let differences = differences.as_ref()?;
    if differences.is_empty() {
        return Ok(Diagnosis::ok(format!("{found}; both have the same settings")));
    }
    let show = remedy::lambda(
        context,
        "get-function-configuration",
        &format!("--function-name {}:{other}", function.name),
    );
    let found = format!("version {other} differs in {}; {found}", differences.join(", "));
    Err(Skip::not_checked(found, ["run it again when the deployment has ended".to_owned(), show]))
}
