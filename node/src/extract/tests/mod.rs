//! Behaviour of extraction through its public doors: tables of cases, and html5ever as the oracle of the
//! tokenizer.

mod charset;
mod content_type;
mod headers;
mod links;
mod oracle;
mod resolve;
mod tokenizer;
