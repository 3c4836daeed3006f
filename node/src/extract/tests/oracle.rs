//! html5ever's tokenizer as the measure of ours: the start tags that it emits when the state is switched by
//! tag name alone, with scripting off.

use std::cell::RefCell;

use html5ever::buffer_queue::BufferQueue;
use html5ever::tendril::StrTendril;
use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{StartTag, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts};

/// A start tag with its attributes, and the text behind it up to the next tag.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OracleTag {
    /// Lower case.
    pub(crate) name: String,
    /// Name and value, without duplicates, in order.
    pub(crate) attributes: Vec<(String, String)>,
    /// Characters up to the next tag of either kind.
    pub(crate) text: String,
}

#[derive(Default)]
struct Sink {
    tags: RefCell<Vec<OracleTag>>,
    in_text: RefCell<bool>,
}

impl TokenSink for Sink {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        match token {
            Token::TagToken(tag) if tag.kind == StartTag => {
                let attributes =
                    tag.attrs.iter().map(|a| (a.name.local.to_string(), a.value.to_string())).collect();
                let name = tag.name.to_string();
                let next = match name.as_str() {
                    "title" | "textarea" => TokenSinkResult::RawData(RawKind::Rcdata),
                    "style" | "xmp" | "iframe" | "noembed" | "noframes" => {
                        TokenSinkResult::RawData(RawKind::Rawtext)
                    }
                    "script" => TokenSinkResult::RawData(RawKind::ScriptData),
                    "plaintext" => TokenSinkResult::Plaintext,
                    _ => TokenSinkResult::Continue,
                };
                self.tags.borrow_mut().push(OracleTag { name, attributes, text: String::new() });
                *self.in_text.borrow_mut() = true;
                next
            }
            Token::TagToken(_) => {
                *self.in_text.borrow_mut() = false;
                TokenSinkResult::Continue
            }
            Token::CharacterTokens(text) => {
                if *self.in_text.borrow()
                    && let Some(tag) = self.tags.borrow_mut().last_mut()
                {
                    tag.text.push_str(&text);
                }
                TokenSinkResult::Continue
            }
            _ => TokenSinkResult::Continue,
        }
    }
}

/// All start tags of `text`.
pub(crate) fn start_tags(text: &str) -> Vec<OracleTag> {
    let tokenizer =
        Tokenizer::new(Sink::default(), TokenizerOpts { discard_bom: false, ..Default::default() });
    let input = BufferQueue::default();
    input.push_back(StrTendril::from(text));
    let _ = tokenizer.feed(&input);
    tokenizer.end();
    tokenizer.sink.tags.take()
}
