<?php
// Render wikitext as MediaWiki shows it: php render_pages.php --pages in.jsonl --shown templates.json --output out.jsonl
// Each line of the input has an id, a title and a text; each line of the output an id and the HTML. Templates that the
// wiki lacks show the given wikitext, or nothing. bench/rendering.py sets the environment.
require_once getenv( 'MW_INSTALL_PATH' ) . '/maintenance/Maintenance.php';

class RenderPages extends Maintenance {
	public function __construct() {
		parent::__construct();
		foreach ( [ 'pages', 'shown', 'output' ] as $name ) {
			$this->addOption( $name, '', true, true );
		}
	}

	public function execute() {
		$services = MediaWiki\MediaWikiServices::getInstance();
		$hooks = $services->getHookContainer();
		$shown = json_decode( file_get_contents( $this->getOption( 'shown' ) ), true );
		$hooks->register( 'BeforeParserFetchTemplateRevisionRecord', static function ( $page, $title, &$skip, &$revision ) use ( $shown ) {
			if ( $title->getNamespace() !== NS_TEMPLATE || $title->exists() ) {
				return;
			}
			$text = $shown[mb_strtolower( str_replace( '_', ' ', $title->getDBkey() ) )] ?? '';
			$revision = new MediaWiki\Revision\MutableRevisionRecord( $title );
			$revision->setContent( MediaWiki\Revision\SlotRecord::MAIN, new WikitextContent( "<span class=\"known-template\">$text</span>" ) );
			$revision->setId( 1 );
			$revision->setPageId( 1 );
		} );
		$languages = $services->getLanguageNameUtils()->getLanguageNames();
		$hooks->register( 'InterwikiLoadPrefix', static function ( $prefix, &$data ) use ( $languages ) {
			if ( isset( $languages[$prefix] ) || $prefix === 'simple' ) {
				$data = [ 'iw_prefix' => $prefix, 'iw_url' => "https://$prefix.wikipedia.org/wiki/\$1", 'iw_api' => '', 'iw_wikiid' => '', 'iw_local' => 1, 'iw_trans' => 0 ];
				return false;
			}
		} );
		$output = fopen( $this->getOption( 'output' ), 'w' );
		foreach ( new SplFileObject( $this->getOption( 'pages' ) ) as $line ) {
			$page = json_decode( $line, true );
			if ( !$page ) {
				continue;
			}
			$title = Title::newFromText( $page['title'] ) ?? Title::newFromText( "Page {$page['id']}" );
			$parsed = $services->getParserFactory()->create()->parse( $page['text'], $title, ParserOptions::newFromAnon() );
			$html = $parsed->getText( [ 'allowTOC' => false, 'enableSectionEditLinks' => false ] );
			fwrite( $output, json_encode( [ 'id' => $page['id'], 'html' => $html ], JSON_UNESCAPED_UNICODE ) . "\n" );
		}
	}
}
$maintClass = RenderPages::class;
require_once RUN_MAINTENANCE_IF_MAIN;
