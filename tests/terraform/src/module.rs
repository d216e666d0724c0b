//! The blocks of a module's files.

use std::path::{Path, PathBuf};

use hcl::{Block, Body, Expression};

pub struct Module {
    pub directory: PathBuf,
    pub variables: Vec<Block>,
    pub locals: Vec<(String, Expression)>,
    /// Blocks `resource` and `data`.
    pub resources: Vec<Block>,
    pub outputs: Vec<Block>,
}

impl Module {
    pub fn read(directory: &Path) -> Result<Self, String> {
        let mut module = Self {
            directory: directory.to_owned(),
            variables: vec![],
            locals: vec![],
            resources: vec![],
            outputs: vec![],
        };
        let mut files: Vec<PathBuf> = std::fs::read_dir(directory)
            .map_err(|e| e.to_string())?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|extension| extension == "tf"))
            .collect();
        files.sort();
        for file in files {
            let text = std::fs::read_to_string(&file).map_err(|e| e.to_string())?;
            let body: Body = text.parse().map_err(|e| format!("{}: {e}", file.display()))?;
            for block in body.into_blocks() {
                module.add(block)?;
            }
        }
        Ok(module)
    }

    fn add(&mut self, block: Block) -> Result<(), String> {
        match block.identifier() {
            "variable" => self.variables.push(block),
            "resource" | "data" => self.resources.push(block),
            "output" => self.outputs.push(block),
            "locals" => self.locals.extend(
                block.body.into_attributes().map(|local| (local.key.to_string(), local.expr)),
            ),
            "terraform" => {}
            other => return Err(format!("a block `{other}` is unknown here")),
        }
        Ok(())
    }
}

/// The expression of an attribute.
pub fn attribute<'a>(body: &'a Body, name: &str) -> Option<&'a Expression> {
    body.attributes().find(|attribute| attribute.key() == name).map(|attribute| attribute.expr())
}

/// The bodies of the nested blocks with a name.
pub fn nested<'a>(body: &'a Body, name: &'a str) -> impl Iterator<Item = &'a Body> {
    body.blocks().filter(move |block| block.identifier() == name).map(|block| &block.body)
}

/// The name of a block: of its last label.
pub fn name(block: &Block) -> &str {
    block.labels().last().map_or("", |label| label.as_str())
}

/// The type and the name of a resource.
pub fn address(resource: &Block) -> String {
    resource.labels().iter().map(hcl::BlockLabel::as_str).collect::<Vec<_>>().join(".")
}
