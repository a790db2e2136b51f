//! The guide in the kit's README shows this backend as it is.

const GUIDE: &str = include_str!("../../../conformance/README.md");
const FILES: [&str; 3] = [
    include_str!("../src/lib.rs"),
    include_str!("../src/attempt.rs"),
    include_str!("conformance.rs"),
];

#[test]
fn what_the_guide_shows_is_in_the_files() {
    let blocks: Vec<&str> =
        GUIDE.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(blocks.len(), 7, "the guide's blocks must be found");
    for block in blocks {
        let is_shown = FILES.iter().any(|file| file.contains(block));
        assert!(is_shown, "the guide must show what the example has, not\n{block}");
    }
}

#[test]
fn the_backend_is_as_short_as_the_guide_says() {
    let lines: usize = FILES[..2].iter().map(|file| file.lines().count()).sum();
    assert!(lines < 250, "{lines} lines");
}
